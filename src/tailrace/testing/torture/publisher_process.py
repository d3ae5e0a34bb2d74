"""The publisher of a torture run, put together without the command line so that its source can be sabotaged."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path

from tailrace.coordination import EmbeddedCoordinator
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.publisher import Publisher
from tailrace.publisher.records import CoordinatorRecords
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.sources.interface import Source
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.client import StoreClient
from tailrace.testing.torture.content import DATASET, SHARDS
from tailrace.testing.torture.ending import end_on_sigterm
from tailrace.testing.torture.sabotage import SabotagedSource
from tailrace.wire.server import Server
from tailrace.wire.store_messages import StoreDescription

# Short, so that stops and half-open connections of a second or two are long enough to lose a lease.
SETTINGS = PublisherSettings(marker_interval_s=0.5, heartbeat_s=0.3, lease_s=1.5, lease_margin_s=0.3)


def main(folder: Path, port: int, advertised: str, store: str, sabotage: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = end_on_sigterm()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        client = stack.enter_context(StoreClient(store))
        described = client.describe()
        coordinator = EmbeddedCoordinator(folder / "coordination")
        stack.callback(coordinator.close)
        session = coordinator.open_session("publisher")
        claim = session.claim(f"publisher/{DATASET}")
        while claim is None and not stop.wait(0.1):  # the lease of the one that was killed has to run out
            claim = session.claim(f"publisher/{DATASET}")
        if claim is None:
            return 0
        ledger = open_ledger(folder)
        stack.callback(ledger.close)
        source: Source = _source(described, folder)
        stack.callback(source.close)
        if sabotage != "none":
            source = SabotagedSource(source, sabotage)
        dataset = DatasetPublisher(
            DATASET,
            SHARDS,
            source,
            epoch=claim.epoch,
            records=CoordinatorRecords(coordinator),
            markers=MarkerStore(ledger),
            dead=DeadLetters(ledger, SYSTEM_CLOCK),
            settings=SETTINGS,
            clock=SYSTEM_CLOCK,
        )
        publisher = Publisher([dataset], address=advertised, clock=SYSTEM_CLOCK)
        stack.callback(publisher.close)
        server = Server(f"127.0.0.1:{port}", [publisher.service])
        stack.callback(server.shutdown)
        print("ready", flush=True)
        stop.wait()
    return 0


def _source(described: StoreDescription, folder: Path) -> Source:
    return RocksDBSource(
        described.path, line=described.line, era=described.era, shards=described.shards, index_dir=folder
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]))
