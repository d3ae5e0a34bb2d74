"""Positions name updates within one line's history; they are totally ordered and the same on every replica.

A position is (era, sequence, index). The era rises when a line's history forks, so that a position of a newer history
is greater than any of the older one. Positions of different lines are never compared: a `LinePosition` carries its
line and refuses to be ordered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.errors import PositionInvalid

_NO_LINE = "it names no line (a start may also be 'earliest' or 'latest', and with `tailrace tail` an age such as -5m)"
_POSITION = re.compile(r"([0-9]{1,9}):([0-9]{1,19}):([0-9]{1,10})\Z")


class Position(NamedTuple):
    """Where an update stands in its line: compare, sort and hash like the tuple that it is."""

    era: int
    sequence: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which no one asks of a position

    def __str__(self) -> str:
        return f"{self.era}:{self.sequence}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> Position:
        found = _POSITION.match(text)
        if not found:
            raise PositionInvalid(text=text, reason="not of the form era:sequence:index")
        era, sequence, index = map(int, found.groups())
        if era >= 2**15 or sequence >= 2**63 or index >= 2**31:
            raise PositionInvalid(text=text, reason="a number is out of range")
        return cls(era, sequence, index)


START = Position(0, 0, 0)  # before everything
INDEX_END = 2**31 - 1  # greater than any index: (era, sequence, INDEX_END) covers a whole transaction


@dataclass(frozen=True, slots=True)
class LinePosition:
    """A position together with the line that it belongs to, as users read and write it."""

    line: str
    position: Position

    def __str__(self) -> str:
        return f"{self.line}@{self.position}"

    @classmethod
    def parse(cls, text: str) -> LinePosition:
        line, at, position = text.rpartition("@")
        if not at:
            raise PositionInvalid(text=text, reason=_NO_LINE)
        if not line:
            raise PositionInvalid(text=text, reason="the line before '@' is missing")
        return cls(line, Position.parse(position))


class Witness(NamedTuple):
    """What stood in the log at a position, so that another history at the same position is noticed.

    `origin` is the server or timeline that wrote the record where the log tells (empty otherwise); `checksum` is that
    of the record which holds the position.
    """

    origin: str
    checksum: int


class Checkpoint(NamedTuple):
    """A position and what stood there. `witness` is None at the very start of a log, where nothing stands."""

    position: Position
    witness: Witness | None


MAX_EARLIER = 16


@dataclass(frozen=True, slots=True)
class Marker:
    """Up to where a flow is acknowledged, with the checkpoints before it (newest first, at most `MAX_EARLIER`)."""

    checkpoint: Checkpoint
    earlier: tuple[Checkpoint, ...] = ()

    @property
    def position(self) -> Position:
        return self.checkpoint.position

    def advanced(self, checkpoint: Checkpoint) -> Marker:
        """The marker after an acknowledgement of `checkpoint`; markers never fall."""
        if checkpoint.position <= self.position:
            return self
        earlier = (self.checkpoint, *self.earlier) if self.checkpoint.witness else self.earlier
        return Marker(checkpoint, earlier[:MAX_EARLIER])
