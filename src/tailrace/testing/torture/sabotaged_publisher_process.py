"""A publisher that lies, or whose source does, for the test that the checker notices. The product has no such hook."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Final

import msgspec

from tailrace.coordination import EmbeddedCoordinator
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.publisher import Publisher
from tailrace.publisher.records import CoordinatorRecords
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.clock import SYSTEM_CLOCK
from tailrace.runtime.tasks import drain_on_signals
from tailrace.sources.interface import Source
from tailrace.sources.store_url import open_store_source
from tailrace.testing.torture.content import DATASET, PUBLISHER_SETTINGS, SHARDS
from tailrace.testing.torture.sabotage import SOURCE_SABOTAGES, SabotagedSource, SharingPublisher
from tailrace.wire.server import Server

SETTINGS: Final = msgspec.convert(PUBLISHER_SETTINGS, PublisherSettings)


def main(folder: Path, port: int, advertised: str, store: str, sabotage: str) -> int:
    """It is started once and never killed, so it waits for nobody's lease."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = Event()
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.enter_context(drain_on_signals(stop))
        coordinator = EmbeddedCoordinator(folder / "coordination")
        stack.callback(coordinator.close)
        ledger = open_ledger(folder)
        stack.callback(ledger.close)
        source: Source = open_store_source(store, index_dir=folder)
        stack.callback(source.close)
        kind: type[DatasetPublisher] = SharingPublisher
        if sabotage in SOURCE_SABOTAGES:
            kind, source = DatasetPublisher, SabotagedSource(source, sabotage)
        dataset = kind(
            DATASET,
            SHARDS,
            source,
            epoch=1,
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]))
