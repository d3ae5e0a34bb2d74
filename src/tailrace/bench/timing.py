"""Role: an application that notes, for each update, how long after its commit it was called with it.

`committed_at` is stamped by the store right before the write, so before the fsync that the write waits for: what the
fsync costs is in the latency. Both clocks are this machine's.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import tailrace
from tailrace.errors import Unavailable
from tailrace.subscriber.application import Application
from tailrace.subscriber.subscription import Subscription
from tailrace.updates.batch import UpdateBatch

CONNECT_TIMEOUT_S: Final = 60.0
CURVE_POINTS: Final = 200

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Quantiles in ms of the updates that were due in a span of time, and the curve of their distribution."""

    updates: int
    batches: int
    after_commit: dict[str, float]
    after_due: dict[str, float]
    curve: list[tuple[float, float]]


class TimingRole(Application):
    def __init__(self) -> None:
        self._parts: list[tuple[Milliseconds, Milliseconds, Milliseconds]] = []  # due, after commit, after due
        self._updates = 0
        self._connected = threading.Event()
        self._changed = threading.Condition()
        self._subscription: Subscription | None = None

    def subscribe(self, url: str) -> None:
        """Returns once the flows are here."""
        self._subscription = tailrace.subscribe(url, self, application="latency", start="earliest")
        if not self._connected.wait(CONNECT_TIMEOUT_S):
            raise Unavailable(reason=f"no flows within {CONNECT_TIMEOUT_S:g} s: {self._subscription.status}")

    def on_shard_notice(self, shard: int) -> None:
        self._connected.set()

    def on_updates(self, batch: UpdateBatch) -> None:
        now_us = time.time_ns() / 1000
        committed_us = _numbers(batch.data.column("committed_at"))
        due_us = _numbers(pc.cast(batch.values("due_us"), pa.string()))
        self._parts.append((due_us, (now_us - committed_us) / 1000, (now_us - due_us) / 1000))
        with self._changed:
            self._updates += len(batch)
            self._changed.notify_all()

    def wait_for(self, updates: int, within_s: float) -> None:
        """Returns once so many updates have come in all."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._updates >= updates, within_s):
                assert self._subscription is not None, "subscribe comes first"
                raise Unavailable(reason=f"{self._updates} of {updates} updates came: {self._subscription.status}")

    def latencies(self, skip_s: float) -> Latencies:
        """Of all updates that were due more than `skip_s` after the first one since the last call."""
        due, after_commit, after_due = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        batches = len(self._parts)
        self._parts = []
        counted = due >= due.min() + skip_s * 1e6
        after_commit, after_due = after_commit[counted], after_due[counted]
        shares = np.linspace(0, 1, CURVE_POINTS + 1)
        curve = list(zip(np.quantile(after_commit, shares).tolist(), (shares * 100).tolist(), strict=True))
        return Latencies(len(after_commit), batches, _quantiles(after_commit), _quantiles(after_due), curve)

    def forget(self) -> None:
        self._parts = []

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()


def _numbers(values: Any) -> Milliseconds:
    whole: Any = pc.cast(values, pa.int64())
    return np.asarray(whole.to_numpy(zero_copy_only=False), np.float64)


def _quantiles(milliseconds: Milliseconds) -> dict[str, float]:
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p99_5_ms": 0.995, "max_ms": 1.0}
    return {name: float(np.quantile(milliseconds, share)) for name, share in shares.items()}
