"""When the oldest update past a position was committed: how long a flow that nobody serves has been behind.

A stream knows that of what it has sent. For the rest the log itself is asked, by reading the first updates past the
position, and the answer is kept, as it holds for that position for ever.
"""

from __future__ import annotations

from threading import Event, Lock, Timer
from typing import Final

from tailrace.errors import LogError
from tailrace.sources.interface import Source
from tailrace.updates.position import Position

LOOK_LIMIT_S: Final = 0.5  # a log that shows nothing for so long is not waited for
LOOK_BYTES: Final = 64 << 10
KEPT: Final = 1024


class Ages:
    """Safe to use from many threads; one at a time looks."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = Lock()
        self._known: dict[Position, int] = {}

    def committed_after(self, position: Position) -> int | None:
        """In µs since the epoch; None if the log cannot tell now. To be asked only while there is an update past it."""
        with self._lock:
            found = self._known.get(position)
            if found is None:
                found = self._look(position)
                if found is not None:
                    if len(self._known) >= KEPT:
                        self._known.clear()
                    self._known[position] = found
            return found

    def _look(self, position: Position) -> int | None:
        stop = Event()
        limit = Timer(LOOK_LIMIT_S, stop.set)
        limit.start()
        try:
            for batch in self._source.read(position, stop=stop, max_batch_bytes=LOOK_BYTES):
                if batch.updates.num_rows:
                    first = batch.updates.column("committed_at")[0]
                    return first.value if first.is_valid else None
        except LogError:
            return None  # the dataset's status says what is wrong with its log
        finally:
            limit.cancel()
            limit.join()
        return None
