"""Where a stream starts again, and what it is told that it lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import LogBehind, LogDiverged, Unavailable
from tailrace.publisher.resume import after, of_shards, resume, without
from tailrace.testing.memory_source import MemorySource, rows
from tailrace.updates.position import START, Checkpoint, Marker, Position, Witness


def at(sequence: int, *, era: int = 0, history: int | None = 1) -> Checkpoint:
    return Checkpoint(Position(era, sequence), None if history is None else Witness("", history))


@pytest.fixture
def source() -> MemorySource:
    source = MemorySource()
    source.append(10)
    return source


def test_the_least_marker_is_where_reading_starts_and_the_others_are_remembered(source: MemorySource) -> None:
    found = resume(source, {0: Marker(at(3)), 1: Marker(at(7)), 2: Marker(at(3))})
    assert found.position == Position(0, 3)
    assert found.losses == ()
    assert found.already == {1: Position(0, 7)}


def test_a_log_that_ends_before_a_marker_of_its_era_is_waited_for(source: MemorySource) -> None:
    with pytest.raises(LogBehind):
        resume(source, {0: Marker(at(11))})


def test_a_log_that_ends_before_a_marker_of_an_older_era_has_forked(source: MemorySource) -> None:
    source.era = 1
    found = resume(source, {0: Marker(at(11), (at(9), at(4)))})
    assert found.position == Position(1, 9)
    (loss,) = found.losses
    assert (loss.after, loss.until) == (Position(1, 9), Position(0, 11))
    assert loss.resume == at(9, era=1)


def test_a_fork_without_a_shared_checkpoint_starts_from_what_the_log_holds(source: MemorySource) -> None:
    source.era = 1
    found = resume(source, {0: Marker(at(8, history=9), (at(2, history=9),))})
    (loss,) = found.losses
    assert found.position == START
    assert "no checkpoint is shared" in loss.reason
    assert loss.until == Position(0, 8)


def test_an_era_that_rose_over_the_same_history_loses_nothing(source: MemorySource) -> None:
    source.era = 2
    found = resume(source, {0: Marker(at(8))})
    assert (found.position, found.losses) == (Position(2, 8), ())


def test_an_application_that_acknowledged_nothing_yet_is_told_of_a_new_era(source: MemorySource) -> None:
    source.era = 1
    (loss,) = resume(source, {0: Marker(Checkpoint(START, None))}).losses
    assert "started anew" in loss.reason


def test_a_marker_without_a_witness_does_not_survive_a_new_era(source: MemorySource) -> None:
    source.era = 1
    assert len(resume(source, {0: Marker(at(8, history=None))}).losses) == 1


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(1, 9))
def test_rows_that_a_shard_has_are_left_out(has: list[int], count: int) -> None:
    updates = rows(range(1, count + 1), shards=4)
    already = {shard: Position(0, sequence) for shard, sequence in enumerate(has)}
    expected = [sequence for sequence in range(1, count + 1) if sequence > has[sequence % 4]]
    assert without(updates, already).column("sequence").to_pylist() == expected


def test_a_shard_that_is_not_named_keeps_all_its_rows() -> None:
    updates = rows(range(1, 7), shards=3)
    assert without(updates, {0: Position(0, 6)}).column("sequence").to_pylist() == [1, 2, 4, 5]
    assert of_shards(updates, [2]).column("sequence").to_pylist() == [2, 5]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(0, 5), st.integers(0, 4))
def test_after_keeps_exactly_the_rows_past_a_position(runs: list[int], sequence: int, index: int) -> None:
    places = [(number, one) for number, run in enumerate(runs, 1) for one in range(run)]
    updates = rows(range(1, len(places) + 1))
    columns = list(updates.columns)
    columns[2] = pa.array([place[0] for place in places], pa.int64())
    columns[3] = pa.array([place[1] for place in places], pa.int32())
    updates = pa.RecordBatch.from_arrays(columns, schema=updates.schema)
    kept = after(updates, Position(0, sequence, index))
    found = list(zip(kept.column("sequence").to_pylist(), kept.column("index").to_pylist(), strict=True))
    assert found == [place for place in places if place > (sequence, index)]


@pytest.mark.parametrize(
    ("marker", "kind"), [(at(8, history=9), LogDiverged), (at(11), LogBehind)], ids=["another record", "a shorter log"]
)
def test_a_fork_in_the_current_era_is_told_to_whoever_can_raise_it(
    source: MemorySource, marker: Checkpoint, kind: type[LogDiverged]
) -> None:
    forks: list[LogDiverged] = []
    with pytest.raises(Unavailable, match="opened anew"):
        resume(source, {0: Marker(marker, (at(2),))}, forks.append)
    (fork,) = forks
    assert type(fork) is kind


def test_a_fork_of_an_older_era_needs_no_new_one(source: MemorySource) -> None:
    source.era = 1
    forks: list[LogDiverged] = []
    found = resume(source, {0: Marker(at(8, history=9), (at(2),))}, forks.append)
    assert (found.position, forks) == (Position(1, 2), [])
