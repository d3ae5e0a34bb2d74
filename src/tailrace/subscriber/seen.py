"""Which updates this session has had already: per shard, the position of the last one.

One kernel passes over the positions of a batch: it marks the rows that lie after their shard's last one, moves that
one on, and finds a place where positions fall back, which a sound publisher never sends. A batch of 2,000 rows costs
about 10 µs, and normally nothing is dropped, so that the batch goes on as it came.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tailrace.errors import ProtocolMismatch
from tailrace.updates.kernels import Flags, Int32s, Int64s, kernel
from tailrace.updates.position import Position

FIRST_SHARDS: Final = 64
MAX_SHARDS: Final = 1 << 20  # a shard's number past this is a broken message, not a reason to fill the memory


class Seen:
    """Forgets everything with its session: the next one starts at the markers again."""

    def __init__(self) -> None:
        self._last: Int64s = np.full((FIRST_SHARDS, 3), -1, np.int64)

    def fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that were not seen yet, which count as seen from now on."""
        if batch.num_rows == 0:
            return batch
        shard, era, sequence, index = (_numbers(batch, name) for name in ("shard", "era", "sequence", "index"))
        keep = np.empty(batch.num_rows, np.bool_)
        kept = _mark(shard, era, sequence, index, self._last, keep)
        if kept == _NO_SUCH_SHARD:
            self._reserve(int(shard.max()), int(shard.min()))
            kept = _mark(shard, era, sequence, index, self._last, keep)
        if kept == batch.num_rows:
            return batch
        if kept < 0:
            row = -kept - _OUT_OF_ORDER
            before, after = (Position(int(era[at]), int(sequence[at]), int(index[at])) for at in (row - 1, row))
            raise ProtocolMismatch(reason=f"updates came out of order: {after} follows {before} in one batch")
        return batch.filter(cast(Any, pa.array(keep)))

    def forget(self, shards: list[int]) -> None:
        """These shards went elsewhere; should they come back, they start anew."""
        for shard in shards:
            if shard < len(self._last):
                self._last[shard] = -1

    def _reserve(self, highest: int, lowest: int) -> None:
        if lowest < 0 or highest >= MAX_SHARDS:
            raise ProtocolMismatch(reason=f"an update names shard {lowest if lowest < 0 else highest}")
        missing = max(highest + 1, 2 * len(self._last)) - len(self._last)
        self._last = np.concatenate([self._last, np.full((missing, 3), -1, np.int64)])


def warm() -> None:
    """Loads the kernel, which takes a moment the first time in a process: better before the first update is here."""
    Seen().fresh(_ONE_ROW)


_ONE_ROW: Final = pa.record_batch(
    {
        "shard": pa.array([0], pa.int32()),
        "era": pa.array([0], pa.int32()),
        "sequence": pa.array([0], pa.int64()),
        "index": pa.array([0], pa.int32()),
    }
)


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    column: Any = batch.column(name)
    return column.to_numpy(zero_copy_only=True)


_NO_SUCH_SHARD: Final = -1
_OUT_OF_ORDER: Final = 2  # -2 - row


@kernel
def _mark(shard: Int32s, era: Int32s, sequence: Int64s, index: Int32s, last: Int64s, keep: Flags) -> int:
    """How many rows are kept; `_NO_SUCH_SHARD` with nothing changed; or where order fails."""
    shards, kept = len(last), 0
    for row in range(len(shard)):
        if shard[row] < 0 or shard[row] >= shards:
            return -1
    e0, s0, i0 = np.int64(-1), np.int64(-1), np.int64(-1)
    for row in range(len(shard)):
        e, s, i = np.int64(era[row]), sequence[row], np.int64(index[row])
        if e < e0 or (e == e0 and (s < s0 or (s == s0 and i < i0))):
            return -2 - row
        e0, s0, i0 = e, s, i
        own = shard[row]
        last_e, last_s = last[own, 0], last[own, 1]
        keep[row] = last_e < e or (last_e == e and (last_s < s or (last_s == s and last[own, 2] < i)))
        if keep[row]:
            last[own, 0], last[own, 1], last[own, 2] = e, s, i
            kept += 1
    return kept
