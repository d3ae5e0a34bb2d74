"""A bounded or a following read of a dataset's log, for `tailrace tail`, backfills and Spark.

A range has no flow, no marker and no caravan: whoever asks keeps its own place. It reads the log by itself, so that it
never holds up the applications. What the log lacks in the range is told by a `DataLoss` whose token is 0, as there is
nothing to acknowledge, and that names no shards: it speaks of the whole log, whatever the filter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tailrace.errors import LogDiverged
from tailrace.publisher.resume import after as after_position
from tailrace.publisher.resume import in_era
from tailrace.publisher.stream import Parcel
from tailrace.sources.interface import LogBatch, Lost, Source
from tailrace.updates.filters import Filter
from tailrace.updates.position import Position
from tailrace.updates.schema import EMPTY_UPDATES
from tailrace.wire.messages import DataLoss, Heartbeat, ReadRange, Updates

HEARTBEAT_S = 1.0


def read_range(source: Source, ask: ReadRange, stop: threading.Event) -> Iterator[Parcel]:
    """What the log holds in (after, until], filtered; past the head too if asked to follow, with heartbeats there."""
    bounds = source.bounds()
    start = bounds.after if ask.after is None else _of_this_history(source, ask.after)
    until = None if ask.follow else (bounds.through if ask.until is None else _of_this_history(source, ask.until))
    filter = Filter.parse(ask.filter) if ask.filter else None
    if until is not None and start >= until:
        return
    past_head = until is None or until > bounds.through
    reached = ask.since_us is None
    for batch in _batches(source, start, stop, follow=past_head):
        if batch is None:
            yield EMPTY_UPDATES, Heartbeat(line=source.line, through=start)
            continue
        if batch.loss is not None:  # even before `since_us`: nobody knows when it was committed
            yield from _loss_notice(source.line, batch.loss, start, until)
        start = batch.through
        updates = batch.updates if reached else _since(batch.updates, ask.since_us)
        reached = reached or updates.num_rows > 0
        updates = filter.select(updates) if filter else updates
        if until is not None and batch.through > until:
            updates = updates.slice(0, updates.num_rows - after_position(updates, until).num_rows)
        through = batch.through if until is None else min(batch.through, until)
        yield updates, Updates(line=source.line, through=through)
        if until is not None and batch.through >= until:
            return


def _loss_notice(line: str, lost: Lost, start: Position, until: Position | None) -> Iterator[Parcel]:
    """What of a loss lies in (start, until], if anything."""
    after, end = max(lost.after, start), lost.until if until is None else min(lost.until, until)
    if after < end:
        yield EMPTY_UPDATES, DataLoss(token=0, line=line, shards=[], after=after, until=end, reason=lost.reason)


def _of_this_history(source: Source, asked: Position) -> Position:
    """The place asked for; refused if it lies in another era, whose log is not the one that would be read.

    Position 0 stands for the beginning of any history.
    """
    if asked.era == source.era or asked.sequence == 0:
        return in_era(asked, source.era)
    raise LogDiverged(line=source.line, marker=asked, reason=f"the log is in era {source.era} now; ask from its start")


def _batches(source: Source, start: Position, stop: threading.Event, *, follow: bool) -> Iterator[LogBatch | None]:
    """The log from `start`; None once a second at the head, so that the stream notices a client that is gone."""
    if not follow:
        yield from source.read(start, stop=stop)
        return
    ended = threading.Event()
    arrived = threading.Condition()
    waiting: list[LogBatch] = []
    failed: list[BaseException] = []

    def pump() -> None:
        try:
            for batch in source.read(start, stop=ended):
                with arrived:
                    while len(waiting) >= 4 and not ended.is_set():
                        arrived.wait(HEARTBEAT_S)
                    waiting.append(batch)
                    arrived.notify_all()
        except Exception as error:  # noqa: BLE001 - raised again by the generator that waits
            failed.append(error)

    thread = threading.Thread(target=pump, name="follow-range", daemon=True)
    thread.start()
    try:
        while not stop.is_set():
            with arrived:
                if not waiting:
                    arrived.wait(HEARTBEAT_S)
                batch = waiting.pop(0) if waiting else None
                arrived.notify_all()
            if batch is None and failed:
                raise failed[0]
            yield batch
    finally:
        ended.set()
        thread.join(HEARTBEAT_S)


def _since(updates: pa.RecordBatch, since_us: int | None) -> pa.RecordBatch:
    """The rows from the first one committed at or after a time; commit times need not rise, so it is the first."""
    if since_us is None or not updates.num_rows:
        return updates
    stamps = updates.column("committed_at").cast(pa.int64()).fill_null(-(2**62)).to_numpy(zero_copy_only=False)
    late = np.maximum.accumulate(stamps) >= since_us
    return updates.slice(int(np.argmax(late))) if late.any() else updates.slice(updates.num_rows)
