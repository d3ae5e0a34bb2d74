"""A written log as its publisher would read it, batch by batch, up to its head."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tailrace.bench.workload import SHARDS
from tailrace.bench.written import ERA, LINE, WrittenLog
from tailrace.sources.interface import LogBatch
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.updates.position import Position


def batches_of(log: WrittenLog) -> Iterator[LogBatch]:
    source = RocksDBSource(log.folder, line=LINE, era=ERA, shards=SHARDS)
    stop = threading.Event()
    try:
        for batch in source.read(Position(ERA, 0), stop=stop):
            yield batch
            if batch.through.sequence >= log.head:
                break
    finally:
        stop.set()
        source.close()
