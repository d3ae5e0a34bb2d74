"""Batches and single updates: what a view reads is what the Arrow batch holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from tests.updates.filters.generated import NAMES, batches

from tailrace.updates.batch import ROWS_BEFORE_COLUMN, Update, UpdateBatch
from tailrace.updates.position import START, Position
from tailrace.updates.schema import UPDATE_SCHEMA

COMMITTED = datetime(2026, 11, 18, 21, 40, 8, 123456, tzinfo=UTC)


def batch_of(data: pa.RecordBatch) -> UpdateBatch:
    return UpdateBatch(data, line="shop", epoch=3, through=Position(1, 100, 0))


def row(sequence: int, pairs: dict[str, bytes | None] | None = None, **more: Any) -> dict[str, Any]:
    fixed = {"shard": 5, "era": 1, "sequence": sequence, "index": 2, "table": "orders", "operation": "put"}
    held = None if pairs is None else list(pairs.items())
    return {**fixed, "key": b"k%d" % sequence, "committed_at": COMMITTED, "before": None, "pairs": held, **more}


def batch(*rows: dict[str, Any]) -> UpdateBatch:
    return batch_of(pa.RecordBatch.from_pylist(list(rows), schema=UPDATE_SCHEMA))


def test_an_update_shows_its_columns() -> None:
    (update,) = batch(row(7, {"name": b"x"}, before=[("name", b"w")]))
    assert update.shard == 5
    assert update.position == Position(1, 7, 2)
    assert update.committed_at == COMMITTED
    assert update.table == "orders"
    assert update.operation == "put"
    assert update.key == b"k7"
    assert update.pairs == {"name": b"x"}
    assert update.before == {"name": b"w"}
    assert repr(update) == "<Update 1:7:2 put orders b'k7' {'name': b'x'}>"


def test_what_the_log_does_not_tell_is_none() -> None:
    (update,) = batch(row(7, None, committed_at=None))
    assert update.committed_at is None
    assert update.before is None
    assert update.pairs == {}
    assert len(update.pairs) == 0


def test_null_and_absent_pairs_differ() -> None:
    (update,) = batch(row(7, {"name": None}))
    assert update["name"] is None
    assert update.get("name", b"default") is None
    assert "name" in update
    assert update.get("other") is None
    assert update.get("other", b"default") == b"default"
    assert "other" not in update
    with pytest.raises(KeyError, match="other"):
        update["other"]
    with pytest.raises(KeyError, match="other"):
        update.pairs["other"]


@given(batches())
def test_every_view_reads_what_the_batch_holds(data: pa.RecordBatch) -> None:
    expected: list[dict[str, Any]] = data.to_pylist()
    for update, held in zip(batch_of(data), expected, strict=True):
        pairs = dict(held["pairs"] or [])
        assert {name: update.get(name, b"absent") for name in NAMES} == {
            name: pairs.get(name, b"absent") for name in NAMES
        }
        assert dict(update.pairs) == pairs
        assert update.key == held["key"]
        assert update.committed_at == held["committed_at"]
        assert update.position == Position(held["era"], held["sequence"], held["index"])


def test_a_name_asked_for_by_many_rows_reads_the_same_as_by_few() -> None:
    rows = [row(number, {"name": b"n%d" % number} if number % 3 else {}) for number in range(5 * ROWS_BEFORE_COLUMN)]
    found = [update.get("name", b"-") for update in batch(*rows)]
    assert found == [b"n%d" % number if number % 3 else b"-" for number in range(5 * ROWS_BEFORE_COLUMN)]


def test_names_that_only_one_row_has_do_not_pile_up() -> None:
    rows = [row(number, {f"own{number}": b"1"}) for number in range(600)]
    found = batch(*rows)
    assert all(found[number][f"own{number}"] == b"1" for number in range(600))


def test_an_update_outlives_its_batch() -> None:
    kept = list(batch(*(row(number, {"name": b"n%d" % number}) for number in range(10))))
    assert [update["name"] for update in reversed(kept)] == [b"n%d" % number for number in reversed(range(10))]


def test_a_batch_knows_its_first_and_last_position() -> None:
    found = batch(row(7), row(9))
    assert found.first == Position(1, 7, 2)
    assert found.last == Position(1, 9, 2)
    assert len(found) == 2


def test_a_slice_reaches_as_far_as_its_last_update() -> None:
    found = batch(row(7), row(8), row(9))
    assert [update.key for update in found[:2]] == [b"k7", b"k8"]
    assert found[:2].through == Position(1, 8, 2)
    assert found[1:].through == Position(1, 100, 0)
    assert found[:0].through == START
    assert found[2:1].data.num_rows == 0
    assert (found[1:].line, found[1:].epoch) == ("shop", 3)


def test_single_rows_are_indexed_from_both_ends() -> None:
    found = batch(row(7), row(8))
    assert isinstance(found[0], Update)
    assert found[-1].key == b"k8"
    with pytest.raises(IndexError):
        found[2]


def test_updates_stay_in_log_order() -> None:
    with pytest.raises(ValueError, match="log order"):
        batch(row(7), row(8))[::-1]


def test_the_values_of_a_pair_come_as_one_array() -> None:
    found = batch(row(7, {"name": b"x"}), row(8, {"name": None}), row(9, {}), row(10, None))
    assert found.values("name").to_pylist() == [b"x", None, None, None]
    assert found[1:].values("name").to_pylist() == [None, None, None]
