"""The store role: the embedded datastore, in the data folder, under the era that the coordinator gives its history."""

from __future__ import annotations

from pathlib import Path

from tailrace.cli.configuration import Configuration, StoreSettings
from tailrace.cli.roles.assembly import STORE_FOLDER, Assembly
from tailrace.cli.roles.eras import era_of_folder, newer_era
from tailrace.cli.roles.sources import LineWatch
from tailrace.errors import ConfigInvalid
from tailrace.runtime.metrics import Metrics
from tailrace.store.engine import Store
from tailrace.store.folder import claim_folder
from tailrace.store.options import StoreOptions
from tailrace.store.service import StoreService
from tailrace.store.statistics import StoreCollector


def store_options(configuration: Configuration) -> StoreOptions:
    settings = own_settings(configuration)
    return StoreOptions(
        shards=configuration.dataset[settings.dataset].shards,
        durability=settings.durability,
        max_update_bytes=settings.max_update_bytes,
        max_tables=settings.max_tables,
        wal_keep_s=round(settings.wal_keep),
        wal_keep_bytes=settings.wal_keep_bytes,
        write_buffer_bytes=settings.write_buffer_bytes,
    )


def own_settings(configuration: Configuration) -> StoreSettings:
    if configuration.store is None:
        raise ConfigInvalid(path="store", reason="is missing; write [store] to run an embedded store here")
    return configuration.store


def open_store(assembly: Assembly) -> Store:
    """The store, open until the assembly ends."""
    configuration = assembly.configuration
    dataset = own_settings(configuration).dataset
    folder = assembly.folder(STORE_FOLDER) / dataset
    options = store_options(configuration)
    claim(folder, dataset, options.shards)
    if not (folder / "IDENTITY").exists():
        _make(folder, options)
    store = Store.open(folder, era=era_of_folder(assembly, dataset, folder), options=options, clock=assembly.clock)
    assembly.stack.callback(store.close)
    LineWatch(assembly, dataset, folder, lambda: newer_era(assembly, dataset, store.era))
    metrics = Metrics("store")
    metrics.registry.register(StoreCollector({dataset: store}))
    assembly.metrics.append(metrics)
    assembly.readiness.add("store", lambda: [str(failure)] if (failure := store.failure()) else [])
    return store


def claim(folder: Path, dataset: str, shards: int) -> None:
    """Makes the folder the store's, or refuses one that was made with other shards, under the key that says so here."""
    try:
        claim_folder(folder, shards)
    except ConfigInvalid as error:
        raise ConfigInvalid(path=f"dataset.{dataset}.shards", reason=f"{error.reason}; write that again") from error


def _make(folder: Path, options: StoreOptions) -> None:
    """A history has no identity before it exists; the era of its writes needs one, so none are made yet."""
    Store.open(folder, era=0, options=options).close()


def store_service(assembly: Assembly, store: Store) -> StoreService:
    return StoreService({own_settings(assembly.configuration).dataset: store})
