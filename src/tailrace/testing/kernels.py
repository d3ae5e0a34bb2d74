"""Compiles the kernels, by sending a few updates through each of them: `python -m tailrace.testing.kernels`.

numba keeps what it compiled, but several processes that start at once on a fresh clone would each compile the same for
many seconds. `make test` does it once beforehand.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event

from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.engine import Store
from tailrace.store.operations import delete, delete_range, put
from tailrace.store.options import StoreOptions
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.filters import Filter
from tailrace.updates.position import START

SHARDS = 4
FILTERS = (
    "name = 'ada' AND EXISTS name",
    "NOT name IN ('ada', 'bob') OR shard BETWEEN 0 AND 2",
    "name MATCHES '^a' OR table = 'people' OR age BETWEEN 1 AND 9",
)


def compile_kernels() -> int:
    """Returns how many updates came through."""
    with tempfile.TemporaryDirectory(prefix="tailrace-kernels-") as folder:
        path = Path(folder) / "store"
        with Store.open(path, era=0, options=StoreOptions(shards=SHARDS)) as store:
            store.write([put("people", b"1", {"name": "ada", "age": "7"}), put("people", b"2", b"no pairs")])
            store.write([delete("people", b"1"), delete_range("people", b"1", b"3")])
            source = RocksDBSource(path, line="kernels", era=0, shards=SHARDS, horizon=store)
            try:
                batch = next(iter(source.read(START, stop=Event())))
            finally:
                source.close()
    for text in FILTERS:
        Filter.parse(text).mask(batch.updates)
    through = batch.checkpoint.position
    return sum(1 for update in UpdateBatch(batch.updates, "kernels", 1, through) if update.key)


if __name__ == "__main__":
    compile_kernels()
