"""The lies: exactly one update less, and exactly two exchanged, with the positions left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any, cast

import pyarrow as pa

from tailrace.sources.interface import LogBatch
from tailrace.testing.torture.content import key_of, pairs_of
from tailrace.testing.torture.sabotage import SabotagedSource, skip, swap
from tailrace.updates.position import START, Checkpoint, Position
from tailrace.updates.schema import UPDATE_SCHEMA


def batch(*updates: tuple[int, int]) -> pa.RecordBatch:
    rows = [
        {
            "shard": shard, "era": 0, "sequence": sequence, "index": 0, "committed_at": None, "table": "torture",
            "operation": "put", "key": key_of(shard, number), "pairs": list(pairs_of(1, shard, number)[0].items()),
            "before": None,
        }
        for sequence, (shard, number) in enumerate(updates, 1)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=UPDATE_SCHEMA)


def content(updates: pa.RecordBatch) -> list[tuple[int, int, int]]:
    """(sequence, shard, number) of each row."""
    rows = updates.to_pylist()
    return [(row["sequence"], row["shard"], int(dict(row["pairs"])["number"])) for row in rows]


def test_skip_leaves_out_one_update_and_no_other_of_its_key() -> None:
    assert content(skip(batch((1, 49), (1, 50), (1, 550), (2, 50)))) == [(1, 1, 49), (3, 1, 550), (4, 2, 50)]


def test_swap_exchanges_two_updates_of_a_shard_under_their_positions() -> None:
    swapped = swap(batch((1, 1), (2, 1), (1, 2), (1, 3)))
    assert content(swapped) == [(1, 1, 2), (2, 2, 1), (3, 1, 1), (4, 1, 3)]


def test_swap_leaves_a_batch_alone_in_which_no_shard_comes_twice() -> None:
    updates = batch((1, 1), (2, 1))
    assert swap(updates) is updates


class OneBatchAtATime:
    """A log of four updates of one shard."""

    line, era = "test", 0

    def read(self, after: Position, **_: Any) -> Iterator[LogBatch]:
        for first in range(after.sequence + 1, 5, 2):
            updates = batch(*((1, number) for number in range(1, 5))).slice(first - 1, 2)
            yield LogBatch(updates, Checkpoint(Position(0, first + 1), None), 0, at_head=False)


def test_swap_repeats_exchanges_only_in_the_first_batch_of_what_was_read_before() -> None:
    source = SabotagedSource(cast(Any, OneBatchAtATime()), "swap-repeats")

    def read(after: Position) -> list[int]:
        return [number for each in source.read(after, stop=Event()) for _, _, number in content(each.updates)]

    assert read(START) == [1, 2, 3, 4]
    assert read(START) == [2, 1, 3, 4]
    assert read(Position(0, 2)) == [4, 3]
    assert read(Position(0, 4)) == []
