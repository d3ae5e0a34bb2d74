"""From a source's URL to the source: this node's own store, a store elsewhere on the machine, or a RocksDB folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from tailrace.cli.configuration import DatasetSettings
from tailrace.cli.roles.assembly import PUBLISHER_FOLDER, Assembly
from tailrace.cli.roles.eras import era_of_folder
from tailrace.cli.roles.security import client_tls, source_token
from tailrace.coordination.datasets import refuse_other_shards
from tailrace.errors import ConfigInvalid, LogUnreadable
from tailrace.runtime.tasks import Workers
from tailrace.sources.rocksdb.files import identity
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.sources.store_url import open_store_source
from tailrace.store.engine import Store

LOOK_S: Final = 1.0


def open_source(assembly: Assembly, dataset: str, settings: DatasetSettings, own_store: Store | None) -> RocksDBSource:
    """The source of a dataset, closed when the assembly ends."""
    url = source_url(assembly, dataset, settings, own_store)
    if not url:
        assert own_store is not None
        source = _own(assembly, dataset, settings, own_store)
    elif url.startswith("rocksdb://"):
        source = _rocksdb(assembly, dataset, settings, Path(url.removeprefix("rocksdb://")))
        LineWatch(assembly, dataset, source.path, lambda: None)
    else:
        return _store_url(assembly, dataset, settings, url)
    assembly.stack.callback(source.close)
    return source


def source_url(assembly: Assembly, dataset: str, settings: DatasetSettings, own_store: Store | None) -> str:
    """Empty for a store in this process."""
    configuration = assembly.configuration
    if not configuration.has_own_store(dataset):
        return settings.sources[0]
    if own_store is not None:
        return ""
    assert configuration.store is not None
    scheme = "store+tls" if configuration.tls else "store"
    return f"{scheme}://{configuration.store.listen}/{dataset}"


def _own(assembly: Assembly, dataset: str, settings: DatasetSettings, store: Store) -> RocksDBSource:
    return RocksDBSource(
        store.path,
        line=dataset,
        era=store.era,
        shards=settings.shards,
        horizon=store,
        index_dir=_index_folder(assembly, dataset),
    )


def _rocksdb(assembly: Assembly, dataset: str, settings: DatasetSettings, folder: Path) -> RocksDBSource:
    if not (folder / "CURRENT").exists():
        reason = f"{folder} holds no RocksDB (no file CURRENT); name the folder that its process opens"
        raise ConfigInvalid(path=f"dataset.{dataset}.source", reason=reason)
    return RocksDBSource(
        folder,
        line=dataset,
        era=era_of_folder(assembly, dataset, folder),
        shards=settings.shards,
        index_dir=_index_folder(assembly, dataset),
        on_gap=settings.on_gap,
        wal_dir=settings.wal_dir,
    )


def _index_folder(assembly: Assembly, dataset: str) -> Path:
    folder = assembly.folder(PUBLISHER_FOLDER) / "index" / dataset
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _store_url(assembly: Assembly, dataset: str, settings: DatasetSettings, url: str) -> RocksDBSource:
    source = open_store_source(
        url,
        credential=source_token(settings),
        tls=client_tls(assembly.configuration) if url.startswith("store+tls://") else None,
        index_dir=_index_folder(assembly, dataset),
        on_gap=settings.on_gap,
        clock=assembly.clock,
    )
    assembly.stack.callback(source.close)
    refuse_other_shards(dataset, source.shards, settings.shards, f"the store at {url}")
    LineWatch(assembly, dataset, source.path, lambda: source.horizon.superseded_by)
    return source


class LineWatch:
    """Notices that another history took a log's place while it was being read: the role then starts over.

    A folder that was emptied and filled anew has another identity; a store that came back tells its new era.
    """

    def __init__(self, assembly: Assembly, dataset: str, folder: Path, superseded_by: Callable[[], int | None]) -> None:
        self._assembly = assembly
        self._dataset = dataset
        self._folder = folder
        self._superseded_by = superseded_by
        self._identity = identity(folder)
        self._workers = Workers("line-watch", clock=assembly.clock)
        assembly.stack.callback(self._workers.close)
        self._workers.start(dataset, self._watch, self._workers.stop)

    def _watch(self, stop: Event) -> None:
        while not self._assembly.clock.wait(stop, LOOK_S):
            changed = self._change()
            if changed:
                self._assembly.restart(f"the log of {self._dataset} has another history: {changed}")
                return

    def _change(self) -> str:
        era = self._superseded_by()
        if era is not None:
            return f"its era became {era}"
        try:
            found = identity(self._folder)
        except LogUnreadable:
            return ""  # between being emptied and being made again, or not to be read now: the source tells of that
        return f"its identity became {found}" if found != self._identity else ""
