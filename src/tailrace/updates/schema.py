"""The one schema in which updates travel, from the log to every application.

No dictionary columns and no unsigned integers: Spark refuses both. Columns are only ever appended, nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

PAIRS_TYPE: Final = pa.map_(pa.string(), pa.binary())

_FIELDS: list[pa.Field[Any]] = [
    pa.field("shard", pa.int32(), nullable=False),
    pa.field("era", pa.int32(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("index", pa.int32(), nullable=False),
    pa.field("committed_at", pa.timestamp("us", tz="UTC")),
    pa.field("table", pa.string(), nullable=False),
    pa.field("operation", pa.string(), nullable=False),
    pa.field("key", pa.binary()),
    pa.field("pairs", PAIRS_TYPE),
    pa.field("before", PAIRS_TYPE),
]

UPDATE_SCHEMA: Final = pa.schema(_FIELDS)

OPERATIONS: Final = (
    "insert",
    "update",
    "delete",
    "put",
    "merge",
    "delete_range",
    "truncate",
    "message",
    "snapshot",
)

EMPTY_UPDATES: Final = pa.RecordBatch.from_pylist([], schema=UPDATE_SCHEMA)


def concat_updates(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of the rows of several, in their order."""
    if not batches:
        return EMPTY_UPDATES
    concat: Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch] = getattr(pa, "concat_batches")  # noqa: B009 not in the stubs
    return batches[0] if len(batches) == 1 else concat(batches)
