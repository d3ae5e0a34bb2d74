"""What Prometheus learns of the stores of a process, read when it is scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.store.engine import Store
from tailrace.store.folder import free_bytes

_GAUGES: Final[tuple[tuple[str, str, Callable[[Store], float]], ...]] = (
    ("head_sequence", "Sequence number of the newest write, safe or not.", lambda store: store.latest_sequence()),
    ("safe_sequence", "Sequence number up to which the log is safe.", lambda store: store.safe_through()),
    ("era", "Era of the store's history.", lambda store: store.era),
    ("tables", "Tables that exist.", lambda store: len(store.tables())),
    ("failed", "1 while the store takes no writes.", lambda store: float(store.failure() is not None)),
    ("free_disk_bytes", "Room left on the store's disk.", lambda store: free_bytes(store.path)),
)


class StoreCollector(Collector):
    """Registered with a role's metrics; `stores` by dataset."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for name, documentation, value in _GAUGES:
            gauge = GaugeMetricFamily(f"tailrace_store_{name}", documentation, labels=["dataset"])
            for dataset, store in self._stores.items():
                gauge.add_metric([dataset], value(store))
            yield gauge
