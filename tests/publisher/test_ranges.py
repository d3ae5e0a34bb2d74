"""Reads of a range of the log, without a flow."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tailrace.cli.tailing import TailOptions, _print_all, updates
from tailrace.errors import LogDiverged
from tailrace.publisher.ranges import read_range
from tailrace.testing.memory_source import MemorySource
from tailrace.updates.position import START, Position
from tailrace.wire.client import Connection
from tailrace.wire.messages import DataLoss, DatasetInfo, Heartbeat, ReadRange, Updates, encode
from tailrace.wire.server import Server
from tests.publisher.conftest import append_behind_gap
from tests.wire.services import SmallService


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


# ---- what the log lacks -------------------------------------------------------------------------------------------


@pytest.fixture
def gapped() -> MemorySource:
    """1 to 3, a gap from 4 to 8, 9 to 11."""
    source = MemorySource()
    source.append(3)
    append_behind_gap(source, 5, 3)
    return source


def told(source: MemorySource, **ask: Any) -> list[list[int] | tuple[int, int]]:
    """The sequences of each batch that holds some, and (after, until) of each loss."""
    found: list[list[int] | tuple[int, int]] = []
    for batch, message in read_range(source, ReadRange(dataset="shop", **ask), threading.Event()):
        if isinstance(message, DataLoss):
            found.append((message.after.sequence, message.until.sequence))
        elif batch.num_rows:
            found.append(batch.column("sequence").to_pylist())
    return found


def test_a_loss_in_the_range_is_told_where_it_lies(gapped: MemorySource) -> None:
    assert told(gapped) == [[1, 2, 3], (3, 8), [9, 10, 11]]


def test_a_loss_is_told_even_if_the_filter_leaves_nothing(gapped: MemorySource) -> None:
    assert told(gapped, filter="n = '2'") == [[2], (3, 8)]


@pytest.mark.parametrize(
    ("after", "until", "expected"),
    [
        (0, 3, [[1, 2, 3]]),
        (0, 6, [[1, 2, 3], (3, 6)]),
        (5, 9, [(5, 8), [9]]),
        (5, 6, [(5, 6)]),
        (8, 10, [[9, 10]]),
    ],
)
def test_of_a_loss_what_lies_in_the_range_is_told(
    gapped: MemorySource, after: int, until: int, expected: list[list[int] | tuple[int, int]]
) -> None:
    assert told(gapped, after=Position(0, after), until=Position(0, until)) == expected


def test_a_loss_before_the_first_update_of_a_time_is_told_as_it_may_be_of_that_time(gapped: MemorySource) -> None:
    assert told(gapped, since_us=9500) == [(3, 8), [10, 11]]


class RangeService(SmallService):
    tickets = frozenset({"ReadRange"})
    commands = frozenset()


def test_tail_says_a_loss_aloud_beside_the_updates(gapped: MemorySource, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ReadRange(dataset="shop")
    service = RangeService(lambda: ((batch, encode(down)) for batch, down in read_range(gapped, ask, service.stopped)))
    options = TailOptions("shop", None, "earliest", "head", None, as_json=False)
    with Server("127.0.0.1:0", [service]) as server, Connection(server.address) as publisher:
        _print_all(options, updates(publisher, DatasetInfo("shop", "memory", 1), options))
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 6
    assert said.err == (
        "lost: the log does not hold what lies after memory@0:3:0, up to and with memory@0:8:0: bypassed\n"
    )
