"""Role: one application's process, which replays a log through the subscriber library or through bare Flight.

It connects first, and says so once it could receive; then `finish` waits for the end of the log. Both ways count rows,
so that a round which lost or repeated something is noticed and not averaged. Where repeats are lawful, it can be asked
to note positions as well.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as flight

import tailrace
from tailrace.bench.written import WrittenLog
from tailrace.errors import Unavailable
from tailrace.subscriber.application import Application
from tailrace.subscriber.seen import Seen
from tailrace.updates.batch import Update, UpdateBatch
from tailrace.updates.position import Position
from tailrace.updates.schema import UPDATE_SCHEMA

CONNECT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Received:
    """What one application received, and when it had all of it, on the clock that all processes share."""

    updates: int
    finished_at: float
    distinct: int | None = None  # how many of them differ, if positions were noted


class _Replay(Application):
    """Ends once the whole log was received."""

    def __init__(self, log: WrittenLog) -> None:
        self.log = log
        self.updates = 0
        self.noted: npt.NDArray[np.bool_] | None = None  # which sequences came
        self.finished_at = 0.0
        self.connected = threading.Event()
        self.finished = threading.Event()

    def on_shard_notice(self, shard: int) -> None:
        self.connected.set()

    def finish(self) -> None:
        if not self.finished.is_set():
            self.finished_at = time.monotonic()
            self.finished.set()

    @property
    def received(self) -> Received:
        distinct = None if self.noted is None else int(self.noted.sum())
        return Received(self.updates, self.finished_at, distinct)


class BatchReplay(_Replay):
    """`on_updates`: takes batches, as a program that works on Arrow would."""

    def on_updates(self, batch: UpdateBatch) -> None:
        self.updates += len(batch)
        if self.noted is not None:
            self.noted[batch.data.column("sequence").to_numpy()] = True
        if batch.through.sequence >= self.log.head:
            self.finish()


class CallbackReplay(_Replay):
    """`on_update`: reads the key and one pair of each update."""

    def __init__(self, log: WrittenLog) -> None:
        super().__init__(log)
        self.read_bytes = 0

    def on_update(self, update: Update) -> None:
        self.read_bytes += len(update.key) + len(update["score"] or b"")
        self.updates += 1
        if self.updates == self.log.updates:
            self.finish()


class SubscribingRole:
    @staticmethod
    def prepare() -> None:
        """Loads the compiled code of the hot path once for all of them."""
        row = {
            "shard": 0,
            "era": 1,
            "sequence": 1,
            "index": 0,
            "table": "t",
            "operation": "put",
            "pairs": [("a", b"1")],
        }
        batch = pa.RecordBatch.from_pylist([row], schema=UPDATE_SCHEMA)
        fresh = UpdateBatch(Seen().fresh(batch), "warm-up", 1, Position(1, 1))
        assert fresh.values("a").to_pylist() == [b"1"]

    def __init__(self) -> None:
        self._subscription: Any = None
        self._replay: _Replay | None = None
        self._bare: flight.FlightClient | None = None
        self._reader: Any = None

    # ---- through Tailrace -------------------------------------------------------------------------------------------

    def connect(self, url: str, application: str, log: WrittenLog, callback: bool = False) -> None:
        """Returns once the flows are here."""
        self._replay = CallbackReplay(log) if callback else BatchReplay(log)
        self._subscription = tailrace.subscribe(url, self._replay, application=application, start="earliest")
        if not self._replay.connected.wait(CONNECT_TIMEOUT_S):
            raise Unavailable(reason=f"no flows within {CONNECT_TIMEOUT_S:g} s: {self._subscription.status}")

    def note_positions(self) -> None:
        """For a round with repeats, before its gate opens: costs a few microseconds a batch."""
        assert isinstance(self._replay, BatchReplay), "connect comes first, for batches"
        self._replay.noted = np.zeros(self._replay.log.head + 1, np.bool_)

    def finish(self, within_s: float) -> Received:
        """Returns once the whole log was received, and leaves."""
        replay, subscription = self._replay, self._subscription
        assert replay is not None, "connect comes first"
        try:
            if not replay.finished.wait(within_s):
                raise Unavailable(reason=f"the log's end was not reached within {within_s:g} s: {subscription.status}")
            return replay.received
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    # ---- through bare Flight ----------------------------------------------------------------------------------------

    def connect_bare(self, address: str, log: str) -> None:
        """Returns once the stream's schema is here, so that only batches are to come."""
        self._bare = flight.FlightClient(f"grpc+tcp://{address}")
        self._reader = self._bare.do_get(flight.Ticket(log.encode()))
        assert self._reader.schema is not None

    def finish_bare(self) -> Received:
        assert self._bare is not None, "connect_bare comes first"
        updates = 0
        read_chunk = self._reader.read_chunk
        try:
            while True:
                updates += read_chunk().data.num_rows
        except StopIteration:
            finished_at = time.monotonic()
        self._leave_bare()
        return Received(updates, finished_at)

    def _leave_bare(self) -> None:
        if self._bare is not None:
            self._reader.cancel()
            self._bare.close()
            self._bare = None

    def close(self) -> None:
        self._leave()
        self._leave_bare()
