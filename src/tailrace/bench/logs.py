"""Logs to be read: written by the real store, then closed.

Each write of 100 updates is one write batch of RocksDB's, as it is when a store is not so busy that it merges several.
The log is fsynced once, at the end: how fast it is written is not what these benches measure.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from tailrace.bench.workload import DISTINCT_WRITES, SHARDS, TABLE, UPDATES_PER_WRITE, rows
from tailrace.bench.written import ERA, WrittenLog
from tailrace.errors import TailraceError
from tailrace.store.engine import Store
from tailrace.store.operations import Prepared, WriteResult, prepare, put
from tailrace.store.options import StoreOptions


def store_options() -> StoreOptions:
    """As the log was written; its shards are fixed for its life."""
    return StoreOptions(shards=SHARDS)


class LogWriter:
    """Role: writes logs, in a process that takes RocksDB's memory away with it when it ends."""

    def write(self, folder: Path, *, update_bytes: int, log_bytes: int) -> WrittenLog:
        """A log of at least `log_bytes` of updates, each of `update_bytes`."""
        options = StoreOptions(shards=SHARDS, durability="none", max_group_bytes=1)
        count = -(-log_bytes // (update_bytes * UPDATES_PER_WRITE))
        writes = _writes(min(count, DISTINCT_WRITES), update_bytes, options)
        with Store.open(folder, era=ERA, options=options) as store:
            _Loader(store).load(writes, count)
            return WrittenLog(folder, count * UPDATES_PER_WRITE, update_bytes, store.latest_sequence())

    def close(self) -> None:
        """Nothing is open between two logs."""


def _writes(count: int, update_bytes: int, options: StoreOptions) -> list[Prepared]:
    operations = [put(TABLE, key, pairs) for key, pairs in rows(count * UPDATES_PER_WRITE, update_bytes)]
    starts = range(0, len(operations), UPDATES_PER_WRITE)
    return [prepare(operations[start : start + UPDATES_PER_WRITE], options) for start in starts]


class _Loader:
    """Writes many at a time; the store makes callers wait where too much is under way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failure: TailraceError | None = None
        self._answered = threading.Semaphore(0)

    def load(self, writes: Sequence[Prepared], count: int) -> None:
        for number in range(count):
            self._store.submit_prepared([writes[number % len(writes)]], self._on_answer)
        for _ in range(count):
            self._answered.acquire()
        if self._failure is not None:
            raise self._failure

    def _on_answer(self, outcomes: Sequence[WriteResult | TailraceError]) -> None:
        self._failure = next((one for one in outcomes if isinstance(one, TailraceError)), self._failure)
        self._answered.release()
