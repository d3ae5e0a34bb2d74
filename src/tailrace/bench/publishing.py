"""Role: a store and its publisher in one process on one port, the one-machine default, with a gate before the log.

While the gate is shut the log yields nothing. A replay shuts it, lets every subscriber connect and board, and opens it
as its clock starts: so all ride one caravan from the start, and connecting is not measured. Beyond that the source is
the one that everybody gets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tailrace.bench.logs import store_options
from tailrace.bench.written import ERA
from tailrace.errors import Unavailable
from tailrace.publisher.applications import ApplicationRecord
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import Ledger, open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.publisher import Publisher
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.sources.interface import LogBatch
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.store.engine import Store
from tailrace.store.service import StoreService
from tailrace.testing.ports import free_port
from tailrace.updates.position import Position
from tailrace.wire.server import Server

GATE_LOOK_S: Final = 0.02  # how soon a reader that waits at the gate notices that its caravan ended
BOARD_TIMEOUT_S: Final = 60.0


class GatedSource(RocksDBSource):
    """A log whose readers wait at a gate before their first step."""

    gate: threading.Event

    def read(
        self, after: Position, *, stop: threading.Event, max_batch_bytes: int = PublisherSettings.batch_bytes
    ) -> Iterator[LogBatch]:
        while not self.gate.wait(GATE_LOOK_S):
            if stop.is_set():
                return
        yield from super().read(after, stop=stop, max_batch_bytes=max_batch_bytes)


class Records:
    """Applications' records, for as long as the bench runs."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], ApplicationRecord] = {}

    def of(self, dataset: str) -> list[ApplicationRecord]:
        return [record for (where, _), record in self._records.items() if where == dataset]

    def create(self, record: ApplicationRecord) -> ApplicationRecord:
        return self._records.setdefault((record.dataset, record.application), record)


class PublishingRole:
    """Nothing is open before `serve`."""

    def __init__(self) -> None:
        self._gate = threading.Event()
        self._gate.set()
        self._stores: dict[str, Store] = {}
        self._sources: dict[str, GatedSource] = {}
        self._publishers: dict[str, DatasetPublisher] = {}
        self._ledger: Ledger | None = None
        self._publisher: Publisher | None = None
        self._server: Server | None = None

    def serve(self, datasets: Mapping[str, Path], data: Path) -> str:
        """Opens the stores in the folders of `datasets` and serves them; returns the address. The gate is open."""
        data.mkdir(parents=True, exist_ok=True)
        address = f"127.0.0.1:{free_port()}"
        self._ledger = ledger = open_ledger(data)
        for name, folder in datasets.items():
            self._stores[name] = store = Store.open(folder, era=ERA, options=store_options())
            self._sources[name] = source = self._source(name, store, data)
            self._publishers[name] = _dataset_publisher(name, source, ledger)
        self._publisher = Publisher(list(self._publishers.values()), address=address, clock=SYSTEM_CLOCK)
        self._server = Server(address, [self._publisher.service, StoreService(self._stores)])
        return address

    def _source(self, name: str, store: Store, data: Path) -> GatedSource:
        index_dir = data / name
        index_dir.mkdir(exist_ok=True)
        source = GatedSource(
            store.path, line=name, era=ERA, shards=store.options.shards, horizon=store, index_dir=index_dir
        )
        source.gate = self._gate
        return source

    def shut_gate(self) -> None:
        self._gate.clear()

    def wait_aboard(self, dataset: str, applications: Sequence[str]) -> None:
        """Returns once the streams of all these applications ride."""
        deadline = time.monotonic() + BOARD_TIMEOUT_S
        waiting = set(applications)
        while waiting:
            riding = [
                one.name
                for one in self._publishers[dataset].applications()
                if one.active is not None and one.active.stream.riding
            ]
            waiting -= set(riding)
            if time.monotonic() > deadline:
                raise Unavailable(reason=f"{sorted(waiting)} did not board within {BOARD_TIMEOUT_S:g} s")
            time.sleep(GATE_LOOK_S)

    def open_gate(self) -> float:
        """Opens the gate; returns when, on the clock that all processes share."""
        opened_at = time.monotonic()
        self._gate.set()
        return opened_at

    def caravans(self, dataset: str) -> int:
        return self._publishers[dataset].caravans.count

    def close(self) -> None:
        self._gate.set()
        if self._server is not None:
            self._server.shutdown()
        if self._publisher is not None:
            self._publisher.close()
        for source in self._sources.values():
            source.close()
        for store in self._stores.values():
            store.close()
        if self._ledger is not None:
            self._ledger.close()


def _dataset_publisher(name: str, source: GatedSource, ledger: Ledger) -> DatasetPublisher:
    return DatasetPublisher(
        name,
        source.shards,
        source,
        epoch=1,
        records=Records(),
        markers=MarkerStore(ledger),
        dead=DeadLetters(ledger, SYSTEM_CLOCK),
        settings=PublisherSettings(),
        clock=SYSTEM_CLOCK,
    )
