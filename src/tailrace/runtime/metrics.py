"""What a role counts and measures, on prometheus-client.

Each role instance has a `Metrics` with its own registry, so that several of them live in one process without meeting. A
metric is named once, in the role that owns it: `metrics.counter("sent_bytes", "...", ["application"])` becomes
`tailrace_publisher_sent_bytes_total`. Units come last in a name. Asking again for the same name returns the same
metric, asking for it as something else is a bug.

Prometheus computes rates by itself; `Rate` is for `status`, which shows the last 30 seconds without one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tailrace.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["CONTENT_TYPE", "LATENCY_BUCKETS_S", "RATE_WINDOW_S", "Counter", "Gauge", "Histogram", "Metrics", "Rate"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")

M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of one role instance."""

    def __init__(self, role: str) -> None:
        assert _NAME.match(role), f"a role is named in lower case: {role!r}"
        self.role = role
        self.registry = CollectorRegistry()
        self._known: dict[str, tuple[Counter | Gauge | Histogram, tuple[str, ...]]] = {}
        self._lock = Lock()

    def counter(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Counter:
        """Something that only grows: `updates`, `sent_bytes`. Prometheus sees it with `_total` behind."""
        return self._metric(Counter, name, documentation, labels)

    def gauge(self, name: str, documentation: str, labels: Sequence[str] = ()) -> Gauge:
        """Something that rises and falls: `queued_bytes`, `lag_seconds`."""
        return self._metric(Gauge, name, documentation, labels)

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        """How something is distributed: `delivery_seconds`, `batch_bytes`."""
        return self._metric(Histogram, name, documentation, labels, buckets=buckets)

    def render(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _metric(
        self, kind: type[M], name: str, documentation: str, labels: Sequence[str], **options: Sequence[float]
    ) -> M:
        assert _NAME.match(name), f"a metric is named in lower case with its unit last: {name!r}"
        assert documentation, f"metric {name!r} has no documentation"
        with self._lock:
            if name in self._known:
                found, found_labels = self._known[name]
                assert isinstance(found, kind), f"metric {name!r} is a {type(found).__name__}, not a {kind.__name__}"
                assert found_labels == tuple(labels), f"metric {name!r} has labels {found_labels}, not {tuple(labels)}"
                return found
            made: Any = kind
            metric: M = made(f"tailrace_{self.role}_{name}", documentation, labels, registry=self.registry, **options)
            self._known[name] = (metric, tuple(labels))
            return metric


RATE_WINDOW_S: Final = 30
_LEAST_AGE_S = 1.0  # a rate that has just begun is not divided by nearly nothing


class Rate:
    """How much came per second over the last `RATE_WINDOW_S` seconds, in one bucket per second."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._newest = int(self._began)
        self._buckets = [0.0] * RATE_WINDOW_S
        self._lock = Lock()

    def add(self, amount: float) -> None:
        with self._lock:
            second = self._turn(self._clock.monotonic())
            self._buckets[second % RATE_WINDOW_S] += amount

    def per_s(self) -> float:
        with self._lock:
            now = self._clock.monotonic()
            self._turn(now)
            covered_s = min(now - self._began, RATE_WINDOW_S - 1 + now % 1)
            return sum(self._buckets) / max(covered_s, _LEAST_AGE_S)

    def _turn(self, now: float) -> int:
        """Empties the buckets of the seconds that passed since the last look; returns the current second."""
        second = int(now)
        for passed in range(max(self._newest + 1, second - RATE_WINDOW_S + 1), second + 1):
            self._buckets[passed % RATE_WINDOW_S] = 0.0
        self._newest = max(self._newest, second)
        return second
