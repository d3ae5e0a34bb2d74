"""Which updates this session has had already: per shard, the position of the last one.

A batch normally starts after everything seen, and then nothing is dropped; otherwise each row is compared with its own
shard's last position. Both are a few numpy operations per batch. Rows are in log order within a batch, so the last row
of a shard is its furthest: assigning all rows by shard leaves exactly that one.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import ProtocolMismatch
from tailrace.updates.position import START, Position

Numbers = npt.NDArray[Any]


class Seen:
    """Forgets everything with its session: the next one starts at the markers again."""

    def __init__(self) -> None:
        self._furthest = START
        self._era = np.zeros(0, np.int32)
        self._sequence = np.zeros(0, np.int64)
        self._index = np.zeros(0, np.int32)

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that were not seen yet, which count as seen from now on."""
        if batch.num_rows == 0:
            return batch
        shard, era, sequence, index = (_numbers(batch, name) for name in ("shard", "era", "sequence", "index"))
        self._reserve(int(shard.max()))
        first, last = _position(era, sequence, index, 0), _position(era, sequence, index, -1)
        _require_log_order(era, sequence, index, first)
        if first <= self._furthest:
            new = self._is_new(shard, era, sequence, index)
            if not new.all():
                batch = batch.filter(cast(Any, pa.array(new)))
                shard, era, sequence, index = shard[new], era[new], sequence[new], index[new]
        self._era[shard] = era
        self._sequence[shard] = sequence
        self._index[shard] = index
        self._furthest = max(self._furthest, last)
        return batch

    def forget(self, shards: list[int]) -> None:
        """These shards went elsewhere; should they come back, they start anew."""
        for shard in shards:
            if shard < len(self._era):
                self._era[shard] = self._sequence[shard] = self._index[shard] = 0

    def _is_new(self, shard: Numbers, era: Numbers, sequence: Numbers, index: Numbers) -> npt.NDArray[np.bool_]:
        last_era, last_sequence, last_index = self._era[shard], self._sequence[shard], self._index[shard]
        later_in_era = (sequence > last_sequence) | ((sequence == last_sequence) & (index > last_index))
        return cast("npt.NDArray[np.bool_]", (era > last_era) | ((era == last_era) & later_in_era))

    def _reserve(self, shard: int) -> None:
        missing = shard + 1 - len(self._era)
        if missing > 0:
            self._era, self._sequence, self._index = (
                np.concatenate([held, np.zeros(missing, held.dtype)])
                for held in (self._era, self._sequence, self._index)
            )


def _numbers(batch: pa.RecordBatch, name: str) -> Numbers:
    column: Any = batch.column(name)
    return cast(Numbers, column.to_numpy(zero_copy_only=True))


def _position(era: Numbers, sequence: Numbers, index: Numbers, row: int) -> Position:
    return Position(int(era[row]), int(sequence[row]), int(index[row]))


def _require_log_order(era: Numbers, sequence: Numbers, index: Numbers, first: Position) -> None:
    """Rows of one batch never fall back: a publisher that sends them so is broken, and dropping rows would hide it."""
    earlier, later = sequence[:-1], sequence[1:]
    if era[0] == era[-1] and bool((later > earlier).all()):
        return
    same_era = era[1:] == era[:-1]
    in_order = (era[1:] > era[:-1]) | (
        same_era & ((later > earlier) | ((later == earlier) & (index[1:] >= index[:-1])))
    )
    if not in_order.all():
        row = int(np.flatnonzero(~in_order)[0]) + 1
        raise ProtocolMismatch(
            reason=f"updates came out of order: {_position(era, sequence, index, row)} follows "
            f"{_position(era, sequence, index, row - 1)} in the batch that starts at {first}"
        )
