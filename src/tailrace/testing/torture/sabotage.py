"""A source that loses an update or swaps two, and a publisher with several owners: what the checker must catch.

The source keeps the positions as they were, so that nothing downstream can notice; only the content tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import Final, cast

import msgspec
import pyarrow as pa

from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.stream import Stream
from tailrace.sources.interface import Address, Bounds, LogBatch, Source
from tailrace.sources.limits import BATCH_BYTES
from tailrace.testing.torture.content import key_of
from tailrace.updates.position import START, Marker, Position
from tailrace.updates.schema import UPDATE_SCHEMA
from tailrace.wire.messages import Subscribe

SOURCE_SABOTAGES: Final = ("skip", "swap", "swap-repeats")
SKIPPED: Final = (1, 50)  # shard and number
POSITION_COLUMNS: Final = ("shard", "era", "sequence", "index")


class SharingPublisher(DatasetPublisher):
    """Takes each subscriber for an application of its own, so that all of them get everything at once."""

    def subscribe(self, ask: Subscribe) -> Stream:
        return super().subscribe(msgspec.structs.replace(ask, application=ask.subscriber))


class SabotagedSource:
    """Delegates to `source`; `read` skips `SKIPPED`, or swaps the first two updates of one shard in each batch.

    `swap-repeats` does so only in the first batch of those that were read before: right behind the marker from where a
    new session starts, and thus usually received before.
    """

    def __init__(self, source: Source, sabotage: str) -> None:
        assert sabotage in SOURCE_SABOTAGES
        self.line = source.line
        self.era = source.era
        self._source = source
        self._spoil = skip if sabotage == "skip" else swap
        self._only_repeats = sabotage == "swap-repeats"
        self._through = START

    def bounds(self) -> Bounds:
        return self._source.bounds()

    def locate(self, marker: Marker) -> Address:
        return self._source.locate(marker)

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = BATCH_BYTES) -> Iterator[LogBatch]:
        spoils = not self._only_repeats or after < self._through
        for batch in self._source.read(after, stop=stop, max_batch_bytes=max_batch_bytes):
            yield replace(batch, updates=self._spoil(batch.updates)) if spoils else batch
            spoils = not self._only_repeats
            self._through = max(self._through, batch.through)

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
