"""A caravan: one log reader and the streams that ride with it.

The reader thread appends what it reads to a bounded *window* of recent batches. Each rider has a place in the window
and takes what comes next at its own pace, so that the window is every rider's bounded queue at once, and a batch is
held in memory once however many ride. Filters run once per distinct filter and batch, by whoever needs it first; what
they found is kept as a bit per row, and the rows that pass are copied for as long as some stream sends them.

When the window is full, its oldest batches go, unless a rider still needs them. Then the reader waits: a replay runs as
fast as its riders take it. A laggard may keep others waiting, but not for long: one that takes nothing for `patience_s`
while others have nothing left to take is moved off, and so is one that keeps them waiting for more than half of the
time until that adds up to `slowness_s`. It reads alone from where it is until it is close enough to board again. So a
stopped subscriber costs the others a moment, a slow one a little longer, and nobody is thrown off for a hiccup of the
machine or for being slow together.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.runtime.clock import Clock
from tailrace.sources.interface import LogBatch, Source
from tailrace.updates.filters import Filter, FilterSet, Lookups, picked
from tailrace.updates.position import Position

log = logging.getLogger(__name__)

ENTRY_OVERHEAD_BYTES: Final = 8 << 10  # what a small batch costs besides its rows
NO_FILTERS: Final = FilterSet(())


class Entry:
    """One batch in a window, with what each distinct filter selects of it.

    `filters` are those of the riders at the time: asked for one of them, the batch is searched for all at once.
    """

    __slots__ = ("_filters", "_lock", "_lookups", "_masks", "_selected", "after", "batch", "update_bytes")

    def __init__(self, after: Position, batch: LogBatch, filters: FilterSet = NO_FILTERS) -> None:
        self._filters = filters
        self.after = after
        self.batch = batch
        self.update_bytes = batch.updates.nbytes  # its share of buffers that it has in common with other batches
        self._lock = threading.Lock()
        self._lookups: Lookups | None = None
        self._masks: dict[Filter, pa.BooleanArray] = {}
        self._selected: WeakValueDictionary[Filter, pa.RecordBatch] = WeakValueDictionary()

    @property
    def through(self) -> Position:
        return self.batch.through

    @property
    def size_bytes(self) -> int:
        """What it counts for in a window."""
        return self.update_bytes + ENTRY_OVERHEAD_BYTES

    def bytes_of(self, selected: pa.RecordBatch) -> int:
        """How large a selection is that ends with this entry."""
        return self.update_bytes if selected is self.batch.updates else selected.get_total_buffer_size()

    def select(self, filter: Filter | None) -> pa.RecordBatch:
        """The rows that pass; shared with whoever holds the same ones just now."""
        updates = self.batch.updates
        if filter is None or not updates.num_rows or filter.passes_everything:
            return updates
        with self._lock:
            found = self._selected.get(filter)
            if found is None:
                found = self._selected[filter] = picked(updates, self._mask(filter))
            return found

    def _mask(self, filter: Filter) -> pa.BooleanArray:
        """Computed once per distinct filter, look-ups shared between those of the riders."""
        mask = self._masks.get(filter)
        if mask is None:
            self._lookups = self._lookups or self._filters.lookups(self.batch.updates)
            mask = self._masks[filter] = filter.mask(self.batch.updates, self._lookups)
            if len(self._masks) >= len(self._filters):
                self._lookups = None
        return mask


@dataclass(slots=True, eq=False)
class Rider:
    """A stream's place in a caravan: the number of the entry that it takes next, and how long it held others up."""

    name: str
    next_entry: int
    judged_at: float
    filter: Filter | None = None
    stalled_s: float = 0.0  # how long it has kept others waiting without taking anything
    held_up_s: float = 0.0  # how much longer than half of the time it has kept others waiting
    aboard: bool = True


@dataclass(frozen=True, slots=True)
class Holding:
    """What the reader sees while its window is full: who needs the oldest batch, and whether anyone starves for it."""

    laggards: tuple[Rider, ...]
    someone_starves: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """How long riders wait for one another; see the module."""

    patience_s: float
    slowness_s: float


def to_move_off(holding: Holding, waited_s: float, now: float, limits: Patience) -> tuple[Rider, ...]:
    """Which laggards have used up the others' patience, after another `waited_s` of waiting. Pure but for the tally."""
    if not holding.someone_starves:
        return ()
    for rider in holding.laggards:
        forgiven_s = (now - rider.judged_at) / 2
        rider.judged_at = now
        rider.stalled_s += waited_s
        rider.held_up_s = max(0.0, rider.held_up_s + waited_s - forgiven_s)
    return tuple(
        rider
        for rider in holding.laggards
        if rider.stalled_s >= limits.patience_s or rider.held_up_s >= limits.slowness_s
    )


class Caravan:
    """See the module. Safe to use from many threads; `on_ended` is called once, by the reader thread, at its end."""

    def __init__(
        self,
        name: str,
        source: Source,
        after: Position,
        *,
        window_bytes: int,
        batch_bytes: int,
        patience: Patience,
        clock: Clock,
        on_ended: Callable[[Caravan], None],
    ) -> None:
        self.name = name
        self.log_bytes = 0
        self.error: BaseException | None = None
        self._source = source
        self._window_bytes = window_bytes
        self._batch_bytes = batch_bytes
        self._patience = patience
        self._clock = clock
        self._on_ended = on_ended
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)  # riders wait on it for an entry
        self._room = threading.Condition(self._lock)  # the reader waits on it for room in the window
        self._entries: deque[Entry] = deque()
        self._first = 0  # the number of the oldest entry in the window
        self._size_bytes = 0
        self._through = after
        self._oldest = after
        self._riders: set[Rider] = set()
        self._filters = NO_FILTERS
        self._stop = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"caravan-{name}", daemon=True)

    # ---- riders ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def board(self, name: str, sent: Position, *, filter: Filter | None = None, near: bool = False) -> Rider | None:
        """A place for a stream that has been sent everything up to `sent`, if that lies in the window.

        `near` asks for the newer half of it, so that a stream just moved off does not come straight back.
        The first entry that the rider takes may start before `sent`: the stream slices off what it has.
        """
        with self._lock:
            if self._ended or self._stop.is_set() or not self._oldest <= sent <= self._through:
                return None
            number = self._first + bisect_right(self._entries, sent, key=lambda entry: entry.through)
            if near and self._from(number) > self._window_bytes // 2:
                return None
            rider = Rider(name, number, self._clock.monotonic(), filter)
            self._riders.add(rider)
            self._gather_filters()
            return rider

    def _gather_filters(self) -> None:
        self._filters = FilterSet({rider.filter for rider in self._riders if rider.filter is not None})

    def leave(self, rider: Rider) -> None:
        """The stream no longer rides; a caravan without riders ends."""
        with self._lock:
            self._riders.discard(rider)
            rider.aboard = False
            self._gather_filters()
            if not self._riders:
                self._stop.set()
            self._room.notify()

    def take(self, rider: Rider, timeout_s: float, max_bytes: int) -> list[Entry]:
        """The next entries for this rider, at least one and up to `max_bytes`; empty when `timeout_s` passes first.

        Also empty when the rider was moved off (`rider.aboard` is False then), the caravan ended, or `wake` was called.
        """
        with self._lock:
            if rider.aboard and rider.next_entry >= self._first + len(self._entries) and not self._ended:
                self._more.wait(timeout_s)
            if not rider.aboard:
                return []
            start = rider.next_entry - self._first
            taken: list[Entry] = []
            size = 0
            for place in range(start, len(self._entries)):
                entry = self._entries[place]
                size += entry.size_bytes
                if taken and size > max_bytes:
                    break
                taken.append(entry)
            if taken:
                rider.next_entry += len(taken)
                rider.stalled_s = 0.0
                if start == 0:
                    self._room.notify()
            elif self._ended:
                rider.aboard = False
            return taken

    def behind_bytes(self, rider: Rider) -> int:
        """What the window holds that this rider has not taken."""
        with self._lock:
            return self._from(rider.next_entry)

    def _from(self, number: int) -> int:
        return sum(entry.size_bytes for entry in islice(self._entries, max(0, number - self._first), None))

    def wake(self) -> None:
        """Lets every waiting rider look around: there is something for one of them besides updates."""
        with self._lock:
            self._more.notify_all()

    # ---- what others may know ---------------------------------------------------------------------------------------

    @property
    def through(self) -> Position:
        return self._through

    @property
    def riders(self) -> int:
        return len(self._riders)

    @property
    def window_used_bytes(self) -> int:
        return self._size_bytes

    def end(self, timeout_s: float = 10.0) -> None:
        """Stops the reader and waits for its thread."""
        self._stop.set()
        with self._lock:
            self._more.notify_all()
            self._room.notify()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # ---- the reader -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            reader = self._source.read(self._through, stop=self._stop, max_batch_bytes=self._batch_bytes)
            for batch in reader:
                if not self._append(Entry(self._through, batch, self._filters)):
                    break
        except TailraceError as error:
            self.error = error
            log.warning("caravan %s ends: %s", self.name, error)
        except Exception as error:
            self.error = error
            log.exception("caravan %s ends", self.name)
        finally:
            with self._lock:
                self._ended = True
                self._more.notify_all()
            self._on_ended(self)

    def _append(self, entry: Entry) -> bool:
        """Adds an entry once there is room; False when the caravan was stopped meanwhile."""
        with self._lock:
            self._make_room(entry.size_bytes)
            if self._stop.is_set():
                return False
            assert entry.through >= self._through, "a log is read forwards"
            self._entries.append(entry)
            self._size_bytes += entry.size_bytes
            self._through = entry.through
            self.log_bytes += entry.batch.log_bytes
            self._more.notify_all()
            return True

    def _make_room(self, size_bytes: int) -> None:
        while self._entries and self._size_bytes + size_bytes > self._window_bytes and not self._stop.is_set():
            laggards = tuple(rider for rider in self._riders if rider.next_entry <= self._first)
            if not laggards:
                self._drop_oldest()
                continue
            holding = Holding(laggards, self._someone_starves())
            started = self._clock.monotonic()
            self._room.wait(self._patience.patience_s / 4)
            now = self._clock.monotonic()
            for rider in to_move_off(holding, now - started, now, self._patience):
                if rider.next_entry <= self._first:
                    log.info("%s is moved off caravan %s: it held up others", rider.name, self.name)
                    self._riders.discard(rider)
                    rider.aboard = False

    def _someone_starves(self) -> bool:
        end = self._first + len(self._entries)
        return any(rider.next_entry >= end for rider in self._riders)

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self._first += 1
        self._size_bytes -= entry.size_bytes
        self._oldest = entry.through


def ahead(caravans: Iterable[Caravan]) -> list[Caravan]:
    """The caravans, the lead (furthest ahead) first."""
    return sorted(caravans, key=lambda caravan: caravan.through, reverse=True)
