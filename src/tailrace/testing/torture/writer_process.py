"""The writer: numbered updates at a steady rate, many in flight, each noted before it is sent and once it is answered.

It never retries. A number whose write failed is left open, since nobody knows whether it was made; the next number goes
on. On SIGTERM it waits for the answers that are due and ends.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from tailrace.errors import TailraceError
from tailrace.runtime.tasks import drain_on_signals
from tailrace.store.client import ClientLimits, StoreClient
from tailrace.store.operations import WriteResult, put
from tailrace.testing.torture.content import SHARDS, TABLE, key_of, pairs_of
from tailrace.testing.torture.records import ACKNOWLEDGED, SENT, WRITE_RECORD, RecordFile
from tailrace.wire.store_messages import Operation

TICK_S: Final = 0.005
LARGEST_WRITE: Final = 3  # updates in one atomic write
BURST_S: Final = 0.25  # of the rate may be made up for after a pause, no more
DRAIN_S: Final = 20.0
# A stalled or half-open store is given up soon: a run has a fault every other second.
LIMITS: Final = ClientLimits(max_writes=2000, silence_s=2, call_timeout_s=2.0)

Row = tuple[int, int, int, int]


class Writer:
    def __init__(self, client: StoreClient, file: RecordFile, seed: int) -> None:
        self._client = client
        self._file = file
        self._seed = seed
        self._random = random.Random(f"writer {seed}")
        self._numbers = [0] * SHARDS
        self._answered: queue.SimpleQueue[Row] = queue.SimpleQueue()

    def run(self, rate_updates_s: float, stop: threading.Event) -> None:
        due = 0.0
        looked_at = time.monotonic()
        while not stop.wait(TICK_S):
            now = time.monotonic()
            due = min(due + (now - looked_at) * rate_updates_s, BURST_S * rate_updates_s)
            looked_at = now
            due -= self._write_all(int(due))
            self.note_answers()

    def _write_all(self, count: int) -> int:
        """Sends about this many updates; returns how many were tried. Stops at the first that cannot be sent."""
        planned = [self._planned() for _ in range(max(0, count) // 2 + 1)] if count else []
        self._file.append([row for rows, _ in planned for row in rows])
        tried = 0
        for rows, operations in planned:
            tried += len(rows)
            try:
                self._client.write(operations).add_done_callback(partial(self._note, rows))
            except TailraceError:
                break  # the store is away; the numbers stay open, and the next tick tries again
        return tried

    def _planned(self) -> tuple[list[Row], list[Operation]]:
        """One atomic write: what to note of it, and its operations."""
        rows, operations = [], []
        for _ in range(self._random.randint(1, LARGEST_WRITE)):
            shard = self._random.randrange(SHARDS)
            self._numbers[shard] += 1
            number = self._numbers[shard]
            pairs, checksum = pairs_of(self._seed, shard, number)
            rows.append((SENT, shard, number, checksum))
            operations.append(put(TABLE, key_of(shard, number), pairs, shard=shard))
        return rows, operations

    def _note(self, rows: list[Row], future: Future[WriteResult]) -> None:
        """On the client's thread. A write that failed stays open."""
        if future.exception() is None:
            for _, shard, number, checksum in rows:
                self._answered.put((ACKNOWLEDGED, shard, number, checksum))

    def note_answers(self) -> None:
        rows: list[Row] = []
        while not self._answered.empty():
            rows.append(self._answered.get())
        if rows:
            self._file.append(rows)


def main(address: str, seed: int, rate_updates_s: float, writes: Path) -> int:
    stop = threading.Event()
    file = RecordFile(writes, WRITE_RECORD)
    with drain_on_signals(stop), StoreClient(address, limits=LIMITS) as client:
        writer = Writer(client, file, seed)
        print("ready", flush=True)
        writer.run(rate_updates_s, stop)
        drained = client.drain(DRAIN_S)
        writer.note_answers()
    file.close()
    return 0 if drained else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])))
