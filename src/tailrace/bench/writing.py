"""Role: writes on a schedule, whether or not earlier writes were answered (open loop).

Each write is one write batch of one update. The moment at which it was due stands in its pair `due_us`, so that a
writer or a store that falls behind shows in the latencies instead of hiding there. What is due is sent at once; between
two looks at the clock the thread sleeps.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailrace.bench.workload import TABLE, Row, rows, size_of
from tailrace.store.client import StoreClient

ANSWER_TIMEOUT_S: Final = 30.0
LOOK_EVERY_S: Final = 0.000_2
_DUE_BYTES: Final = len("due_us") + 16  # microseconds since 1970 have 16 digits until the year 2286
_DISTINCT: Final = 5_000


@dataclass(frozen=True, slots=True)
class Written:
    """`late_ms` are quantiles of how long after its due time each write was handed to the client."""

    writes: int
    seconds: float
    late_p50_ms: float
    late_p99_ms: float
    answer_p99_ms: float


class WritingRole:
    """A client of a store, with rows of `update_bytes` prepared."""

    def __init__(self, *, update_bytes: int) -> None:
        self._client: StoreClient | None = None
        self._rows: list[Row] = list(rows(_DISTINCT, update_bytes - _DUE_BYTES))
        self._update_bytes = update_bytes

    def connect(self, url: str) -> None:
        self._client = StoreClient(url)

    def warm_up(self, writes: int) -> None:
        """Some writes whose timing nobody looks at: the connection, the table and the code are there afterwards."""
        futures = [self._put(number, int(time.time() * 1e6)) for number in range(writes)]
        for future in futures:
            future.result(ANSWER_TIMEOUT_S)

    def write(self, writes_s: float, seconds: float) -> Written:
        count = int(writes_s * seconds)
        late_s = np.empty(count)
        answered_s = np.zeros(count)
        futures: list[Future[Any]] = []
        started_at = time.time()
        number = 0
        while number < count:
            now = time.time()
            due_count = min(count, int((now - started_at) * writes_s) + 1)
            while number < due_count:
                due_at = started_at + number / writes_s
                future = self._put(number, int(due_at * 1e6))
                late_s[number] = time.time() - due_at
                future.add_done_callback(_note_answer(answered_s, number, due_at))
                futures.append(future)
                number += 1
            time.sleep(LOOK_EVERY_S)
        for future in futures:
            future.result(ANSWER_TIMEOUT_S)
        ended_at = time.time()
        late_p50, late_p99 = np.quantile(late_s, (0.5, 0.99)) * 1000
        answer_p99 = float(np.quantile(answered_s, 0.99)) * 1000
        return Written(count, ended_at - started_at, float(late_p50), float(late_p99), answer_p99)

    def fsync_alone(self, folder: Path, count: int) -> dict[str, float]:
        """What the disk itself takes: appends of one update's size, each fsynced, with nothing else going on."""
        took_s = np.empty(count)
        record = b"x" * self._update_bytes
        with (folder / "fsync-alone").open("wb", buffering=0) as file:
            for number in range(count):
                started = time.perf_counter()
                file.write(record)
                os.fdatasync(file.fileno())
                took_s[number] = time.perf_counter() - started
        p50, p99 = np.quantile(took_s, (0.5, 0.99)) * 1000
        return {"fsync_p50_ms": float(p50), "fsync_p99_ms": float(p99)}

    def _put(self, number: int, due_us: int) -> Future[Any]:
        key, pairs = self._rows[number % _DISTINCT]
        row = {"due_us": b"%d" % due_us, **pairs}
        assert size_of((key, row)) == self._update_bytes
        assert self._client is not None, "connect comes first"
        return self._client.put(TABLE, key, row)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _note_answer(answered_s: Any, number: int, due_at: float) -> Any:
    def note(_: Future[Any]) -> None:
        answered_s[number] = time.time() - due_at

    return note
