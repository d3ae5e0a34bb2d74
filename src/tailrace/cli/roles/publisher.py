"""The publisher role: a source for each dataset, its markers and dead letters, and its claim to be the owner."""

from __future__ import annotations

from tailrace.cli.configuration import Configuration
from tailrace.cli.roles.assembly import PUBLISHER_FOLDER, Assembly
from tailrace.cli.roles.eras import delivered_in_ended_eras, fork_handler
from tailrace.cli.roles.ownership import Ownership
from tailrace.cli.roles.sources import open_source
from tailrace.coordination.datasets import fix_shards
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.publisher import Publisher
from tailrace.publisher.records import CoordinatorRecords
from tailrace.publisher.statistics import PublisherCollector
from tailrace.runtime.metrics import Metrics
from tailrace.store.engine import Store
from tailrace.wire.messages import Subscribe


def open_publisher(assembly: Assembly, address: str, own_store: Store | None) -> Publisher:
    """The publisher of all configured datasets, open until the assembly ends."""
    configuration = assembly.configuration
    ledger = open_ledger(assembly.folder(PUBLISHER_FOLDER))
    assembly.stack.callback(ledger.close)
    ownership = Ownership(assembly, list(configuration.dataset))
    records, markers, dead = (
        CoordinatorRecords(assembly.coordinator()),
        MarkerStore(ledger),
        DeadLetters(ledger, assembly.clock),
    )
    datasets = []
    for name, settings in configuration.dataset.items():
        source = open_source(assembly, name, settings, own_store)
        fix_shards(assembly.coordinator(), name, settings.shards)
        publisher = DatasetPublisher(
            name,
            settings.shards,
            source,
            epoch=ownership.epoch(name),
            records=records,
            markers=markers,
            dead=dead,
            settings=configuration.publisher,
            clock=assembly.clock,
            on_fork=fork_handler(assembly, source.line, source.era, source.path),
            delivered=delivered_in_ended_eras(assembly, source.line),
        )
        assembly.stack.callback(publisher.close)
        _declare(configuration, publisher)
        datasets.append(publisher)
    publisher_of_all = Publisher(datasets, address=configuration.node.advertise or address, clock=assembly.clock)
    assembly.stack.callback(publisher_of_all.close)
    assembly.readiness.add("publisher", publisher_of_all.not_ready)
    metrics = Metrics("publisher")
    metrics.registry.register(PublisherCollector(datasets))
    assembly.metrics.append(metrics)
    return publisher_of_all


def _declare(configuration: Configuration, publisher: DatasetPublisher) -> None:
    """Makes the records of the configured applications that are new, and refuses those that say something else."""
    for name, app in configuration.app.items():
        if configuration.dataset_of(app) == publisher.dataset:
            publisher.declare(
                Subscribe(
                    dataset=publisher.dataset,
                    application=name,
                    subscriber="",
                    filter=app.filter,
                    mode=app.mode,
                    start=app.start,
                )
            )
