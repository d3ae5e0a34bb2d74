"""A replay counts what it gets, and tells repeats from the rest where positions were noted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tailrace.bench.subscribing import BatchReplay, SubscribingRole
from tailrace.bench.written import WrittenLog
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import Position
from tailrace.updates.schema import UPDATE_SCHEMA

LOG = WrittenLog(Path(), updates=6, update_bytes=1, head=6)


def batch(*sequences: int) -> UpdateBatch:
    rows = [
        {"shard": 0, "era": 1, "sequence": sequence, "index": 0, "table": "t", "operation": "put"}
        for sequence in sequences
    ]
    return UpdateBatch(pa.RecordBatch.from_pylist(rows, schema=UPDATE_SCHEMA), "bench", 1, Position(1, sequences[-1]))


def replay(*, notes: bool) -> BatchReplay:
    role = SubscribingRole()
    role._replay = found = BatchReplay(LOG)
    if notes:
        role.note_positions()
    return found


def test_repeats_count_once_where_positions_are_noted() -> None:
    found = replay(notes=True)
    for received in (batch(1, 2, 3), batch(2, 3, 5), batch(6)):
        found.on_updates(received)
    assert found.finished.is_set()
    assert (found.received.updates, found.received.distinct) == (7, 5)


def test_without_notes_updates_are_counted_alone() -> None:
    found = replay(notes=False)
    found.on_updates(batch(1, 2, 3))
    assert (found.received.updates, found.received.distinct) == (3, None)
