"""A source that loses an update, or swaps two: what the checker must catch.

Both keep the positions as they were, so that nothing downstream can notice; only the content tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import Final, cast

import pyarrow as pa

from tailrace.sources.interface import Address, Bounds, LogBatch, Source
from tailrace.sources.limits import BATCH_BYTES
from tailrace.testing.torture.content import key_of
from tailrace.updates.position import Marker, Position
from tailrace.updates.schema import UPDATE_SCHEMA

SABOTAGES: Final = ("skip", "swap")
SKIPPED: Final = (1, 50)  # shard and number
POSITION_COLUMNS: Final = ("shard", "era", "sequence", "index")


class SabotagedSource:
    """Delegates to `source`; `read` skips `SKIPPED`, or swaps the first two updates of one shard in each batch."""

    def __init__(self, source: Source, sabotage: str) -> None:
        assert sabotage in SABOTAGES
        self.line = source.line
        self.era = source.era
        self._source = source
        self._spoil = skip if sabotage == "skip" else swap

    def bounds(self) -> Bounds:
        return self._source.bounds()

    def locate(self, marker: Marker) -> Address:
        return self._source.locate(marker)

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = BATCH_BYTES) -> Iterator[LogBatch]:
        for batch in self._source.read(after, stop=stop, max_batch_bytes=max_batch_bytes):
            yield replace(batch, updates=self._spoil(batch.updates))

    def close(self) -> None:
        self._source.close()


def skip(updates: pa.RecordBatch) -> pa.RecordBatch:
    """Without `SKIPPED`."""
    wanted = key_of(*SKIPPED)
    keys, pairs = updates.column("key").to_pylist(), updates.column("pairs").to_pylist()
    number = b"%d" % SKIPPED[1]
    kept = [
        row
        for row, (key, of_row) in enumerate(zip(keys, pairs, strict=True))
        if key != wanted or dict(of_row or ()).get("number") != number
    ]
    return updates.take(pa.array(kept, pa.int64()))


def swap(updates: pa.RecordBatch) -> pa.RecordBatch:
    """With the content of the first two updates of one shard exchanged, under the positions that stood there."""
    last_of: dict[int, int] = {}
    for row, shard in enumerate(cast(list[int], updates.column("shard").to_pylist())):
        if shard in last_of:
            order = list(range(updates.num_rows))
            order[last_of[shard]], order[row] = row, last_of[shard]
            swapped = updates.take(pa.array(order, pa.int64()))
            columns = [(updates if name in POSITION_COLUMNS else swapped).column(name) for name in UPDATE_SCHEMA.names]
            return pa.RecordBatch.from_arrays(columns, schema=updates.schema)
        last_of[shard] = row
    return updates
