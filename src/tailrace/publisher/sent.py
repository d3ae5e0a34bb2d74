"""What a stream remembers of what it sent: tokens that await their acknowledgement, and places for markers.

A token is superseded by those after it, so that of too many the oldest are forgotten; a loss notice never is.
The places are those up to which each round sent: the last ones, as many again of every second round, as many of every
fourth, and so on. A subscriber may acknowledge any position, and its marker then stands at a place near before it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from tailrace.publisher.resume import Loss
from tailrace.updates.position import Checkpoint, Marker, Position

PLACES_A_LEVEL: Final = 1024
LEVELS: Final = 24


@dataclass(frozen=True, slots=True)
class OpenToken:
    """A token or a loss notice that was sent and awaits its acknowledgement."""

    shards: tuple[int, ...]
    checkpoint: Checkpoint
    loss: Loss | None = None

    def moved(self, marker: Marker) -> Marker:
        """Where a flow's marker stands once this is acknowledged.

        A flow that has not acknowledged all before a loss stays where it is: a token behind the loss takes it across.
        """
        if self.loss is None:
            return marker.advanced(self.checkpoint)
        if not self.loss.skips:
            return Marker(self.checkpoint)
        return marker.advanced(self.checkpoint) if marker.position >= self.loss.after else marker


class OpenTokens:
    """By number, in the order in which they were sent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[int, OpenToken] = OrderedDict()
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def too_many(self) -> bool:
        """More than there may be, and none that can be forgotten."""
        return len(self._open) > self._limit

    @property
    def newest_is_closed(self) -> bool:
        return self._last not in self._open

    def add(self, token: OpenToken) -> int:
        """The token's number."""
        oldest = next((number for number, held in self._open.items() if held.loss is None), None)
        if len(self._open) >= self._limit and oldest is not None:
            del self._open[oldest]
        self._last += 1
        self._open[self._last] = token
        return self._last

    def get(self, number: int) -> OpenToken | None:
        return self._open.get(number)

    def close(self, number: int) -> OpenToken | None:
        return self._open.pop(number, None)


class Trail:
    """Places up to which the log was sent, the coarser the further back."""

    def __init__(self) -> None:
        self._levels = tuple(deque[Checkpoint](maxlen=PLACES_A_LEVEL) for _ in range(LEVELS))
        self._rounds = 0

    def add(self, place: Checkpoint) -> None:
        for power, level in enumerate(self._levels):
            if self._rounds % (1 << power):
                break
            level.append(place)
        self._rounds += 1

    def before(self, position: Position) -> Checkpoint | None:
        """The last place at or before a position."""
        places = (place for level in self._levels for place in level if place.position <= position)
        return max(places, key=lambda place: place.position, default=None)
