"""Dropping repeats, against a slow and obvious model."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ProtocolMismatch
from tailrace.subscriber.seen import Seen
from tailrace.testing.scripted_publisher import updates
from tailrace.updates.schema import EMPTY_UPDATES

Row = tuple[int, int, int]


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    return [(row["shard"], row["sequence"], row["index"]) for row in batch.to_pylist()]


def test_a_batch_after_everything_seen_passes_untouched() -> None:
    seen = Seen()
    first, second = updates((0, 1), (1, 2)), updates((0, 3), (1, 4))
    assert seen.fresh(first) is first
    assert seen.fresh(second) is second


def test_repeats_are_dropped_per_shard() -> None:
    seen = Seen()
    seen.fresh(updates((0, 1), (1, 5)))
    assert rows_of(seen.fresh(updates((0, 3), (1, 4), (1, 5), (1, 6)))) == [(0, 3, 0), (1, 6, 0)]


def test_rows_of_one_transaction_are_told_apart_by_index() -> None:
    seen = Seen()
    seen.fresh(updates((0, 7, 0), (0, 7, 1)))
    assert rows_of(seen.fresh(updates((0, 7, 1), (0, 7, 2)))) == [(0, 7, 2)]


def test_one_position_may_come_once_for_each_shard() -> None:
    seen = Seen()
    seen.fresh(updates((0, 7)))
    assert rows_of(seen.fresh(updates((1, 7), (2, 7)))) == [(1, 7, 0), (2, 7, 0)]


def test_a_newer_era_is_never_a_repeat() -> None:
    seen = Seen()
    seen.fresh(updates((0, 100)))
    assert rows_of(seen.fresh(updates((0, 5), era=1))) == [(0, 5, 0)]
    assert rows_of(seen.fresh(updates((0, 101), era=0))) == []


def test_a_shard_that_went_and_came_back_starts_anew() -> None:
    seen = Seen()
    seen.fresh(updates((0, 5), (1, 6)))
    seen.forget([0, 999])
    assert rows_of(seen.fresh(updates((0, 5), (1, 6)))) == [(0, 5, 0)]


def test_a_sliced_batch_is_read_where_it_starts() -> None:
    seen = Seen()
    seen.fresh(updates((0, 1), (0, 2), (0, 3)).slice(1, 1))
    assert rows_of(seen.fresh(updates((0, 1), (0, 2), (0, 3)))) == [(0, 3, 0)]


def test_an_empty_batch_passes() -> None:
    assert Seen().fresh(EMPTY_UPDATES) is EMPTY_UPDATES


def test_any_number_of_shards_is_followed() -> None:
    seen = Seen()
    seen.fresh(updates((70_000, 1)))
    assert rows_of(seen.fresh(updates((70_000, 1), (3, 2)))) == [(3, 2, 0)]


@pytest.mark.parametrize("shard", [-1, 2**30])
def test_a_shard_that_cannot_be_is_a_broken_message(shard: int) -> None:
    with pytest.raises(ProtocolMismatch, match=str(shard)):
        Seen().fresh(updates((shard, 1)))


def test_positions_that_fall_back_within_a_batch_are_refused() -> None:
    with pytest.raises(ProtocolMismatch, match="0:4:0 follows 0:5:0"):
        Seen().fresh(updates((0, 3), (0, 5), (0, 4)))


rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 2)), max_size=12)


@given(st.lists(rows, max_size=6))
def test_it_does_what_the_obvious_model_does(batches: list[list[Row]]) -> None:
    seen, last = Seen(), dict.fromkeys(range(5), (-1, -1))
    for batch in batches:
        ordered = sorted(set(batch), key=lambda row: row[1:])
        expected = []
        for shard, *position in ordered:
            if tuple(position) > last[shard]:
                last[shard] = (position[0], position[1])
                expected.append((shard, *position))
        assert rows_of(seen.fresh(updates(*ordered))) == expected
