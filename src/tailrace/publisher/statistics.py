"""What Prometheus learns of a publisher: read from its state when it is scraped, so that nothing is counted twice.

Gauges tell where a log and its applications stand; counters that only ever grow come from the objects that do the work.
Every metric carries its dataset, and its application where it is about one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.publisher.applications import Application
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.status import application_status, dataset_status
from tailrace.wire.messages import ApplicationStatus, DatasetStatus

STATES: Final = ("live", "catching up", "blocked", "waiting", "failed")


class _Of(NamedTuple):
    """One dataset at the moment of a scrape."""

    publisher: DatasetPublisher
    status: DatasetStatus


class _App(NamedTuple):
    application: Application
    status: ApplicationStatus


_DATASET: Final[tuple[tuple[str, str, Callable[[_Of], float]], ...]] = (
    ("head_sequence", "Sequence number of the newest update that is safe.", lambda of: of.status.head.sequence),
    (
        "oldest_sequence",
        "Everything after this sequence number can still be read.",
        lambda of: of.status.oldest.sequence,
    ),
    ("era", "Era of the log's history; it rises when the history forks.", lambda of: of.status.era),
    ("epoch", "Epoch of this publisher's claim on the dataset.", lambda of: of.publisher.epoch),
    ("caravans", "Log readers under way.", lambda of: of.status.caravans),
    ("window_bytes", "Recent batches kept for the streams.", lambda of: of.publisher.caravans.window_used_bytes),
    ("failed", "1 while the log cannot be read.", lambda of: float(bool(of.status.error))),
)
_APPLICATION: Final[tuple[tuple[str, str, Callable[[_App], float]], ...]] = (
    (
        "marker_sequence",
        "Least acknowledged sequence number of its flows.",
        lambda app: app.status.acknowledged.sequence,
    ),
    (
        "sent_sequence",
        "Sequence number up to which its subscriber was sent the log.",
        lambda app: app.status.sent.sequence,
    ),
    (
        "lag_positions",
        "Sequence numbers of the log from what it has processed to the head.",
        lambda app: app.status.lag_positions,
    ),
    (
        "lag_seconds",
        "Age of the oldest update that it has not processed; NaN where the log cannot tell.",
        lambda app: math.nan if app.status.lag_s is None else app.status.lag_s,
    ),
    ("queued_bytes", "Read for it and not sent yet.", lambda app: app.status.queued_bytes),
    ("updates_per_second", "Updates sent, over the last 30 s.", lambda app: app.status.updates_s),
    ("bytes_per_second", "Bytes sent, over the last 30 s.", lambda app: app.status.bytes_s),
    ("dead_letters", "Updates that it could not process and put aside.", lambda app: app.status.dead_letters),
    ("subscribers", "Subscribers connected, standbys included.", lambda app: len(app.application.sessions())),
    ("open_tokens", "Tokens sent and not acknowledged.", lambda app: _open_tokens(app.application)),
)


def _open_tokens(application: Application) -> int:
    active = application.active
    return active.stream.open_tokens if active else 0


class PublisherCollector(Collector):
    """Registered with a role's metrics; looks at the publishers anew at every scrape."""

    def __init__(self, datasets: Sequence[DatasetPublisher]) -> None:
        self._datasets = tuple(datasets)

    def describe(self) -> list[Metric]:
        return []  # names are known without looking: a registry need not scrape to register this

    def collect(self) -> Iterator[Metric]:
        yield from self._of_datasets()
        yield from self._of_applications()

    def _of_datasets(self) -> Iterator[Metric]:
        seen = [_Of(publisher, dataset_status(publisher)) for publisher in self._datasets]
        for name, documentation, value in _DATASET:
            gauge = GaugeMetricFamily(f"tailrace_publisher_{name}", documentation, labels=["dataset"])
            for of in seen:
                gauge.add_metric([of.status.dataset], value(of))
            yield gauge
        read = CounterMetricFamily(
            "tailrace_publisher_log_bytes", "Bytes of log read by all caravans.", labels=["dataset"]
        )
        for of in seen:
            read.add_metric([of.status.dataset], of.status.log_bytes)
        yield read

    def _losses(self, seen: Sequence[_App]) -> Metric:
        told = CounterMetricFamily(
            "tailrace_publisher_losses",
            "Loss notices that it acknowledged: updates that it will not get, or that never happened.",
            labels=["dataset", "application"],
        )
        for app in seen:
            told.add_metric([app.status.dataset, app.status.application], app.application.losses)
        return told

    def _of_applications(self) -> Iterator[Metric]:
        seen = [
            _App(application, application_status(publisher, application))
            for publisher in self._datasets
            for application in publisher.applications()
        ]
        for name, documentation, value in _APPLICATION:
            gauge = GaugeMetricFamily(f"tailrace_publisher_{name}", documentation, labels=["dataset", "application"])
            for app in seen:
                gauge.add_metric([app.status.dataset, app.status.application], value(app))
            yield gauge
        yield self._losses(seen)
        states = GaugeMetricFamily(
            "tailrace_publisher_state", "1 for the state that it is in.", labels=["dataset", "application", "state"]
        )
        for app in seen:
            for state in STATES:
                states.add_metric([app.status.dataset, app.status.application, state], float(app.status.state == state))
        yield states
