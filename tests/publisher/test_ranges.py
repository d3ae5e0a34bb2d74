"""Reads of a range of the log, without a flow."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from tailrace.errors import LogDiverged
from tailrace.publisher.ranges import read_range
from tailrace.testing.memory_source import MemorySource
from tailrace.updates.position import START, Position
from tailrace.wire.messages import Heartbeat, ReadRange, Updates


def test_a_time_is_a_place_in_the_log_and_nothing_behind_it_is_left_out() -> None:
    source = MemorySource()
    source.append(3)  # committed at 1000, 2000 and 3000
    source.append(3)
    late = source._batches[1]
    columns = list(late.updates.columns)
    columns[4] = pa.array([10, 20, 30], pa.timestamp("us", "UTC"))  # the machine's clock was set back
    source._batches[1] = replace(late, updates=pa.RecordBatch.from_arrays(columns, schema=late.updates.schema))
    found: list[int] = []
    for batch, _ in read_range(source, ReadRange(dataset="shop", since_us=2000), threading.Event()):
        found += batch.column("sequence").to_pylist()
    assert found == [2, 3, 4, 5, 6]


def test_a_range_that_ends_past_the_head_waits_with_heartbeats() -> None:
    source = MemorySource()
    source.append(3)
    parcels = read_range(source, ReadRange(dataset="shop", until=Position(0, 5)), threading.Event())
    assert isinstance(next(parcels)[1], Updates)
    assert next(parcels)[1] == Heartbeat(line="memory", through=Position(0, 3))
    source.append(3)
    batch, message = next(parcels)
    while isinstance(message, Heartbeat):
        batch, message = next(parcels)
    assert batch.column("sequence").to_pylist() == [4, 5]
    assert list(parcels) == []


def test_a_place_of_another_history_is_no_place_in_this_one() -> None:
    source = MemorySource(era=1)
    source.append(3)
    for ask in (ReadRange(dataset="shop", after=Position(0, 2)), ReadRange(dataset="shop", until=Position(2, 2))):
        with pytest.raises(LogDiverged, match="the log is in era 1 now"):
            next(read_range(source, ask, threading.Event()))
    batch, _ = next(read_range(source, ReadRange(dataset="shop", after=START), threading.Event()))
    assert batch.column("sequence").to_pylist() == [1, 2, 3]
