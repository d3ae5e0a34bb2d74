"""What a node without a store says to those who would write to it or read rows: who has the store."""

from __future__ import annotations

from typing import NoReturn

from tailrace.cli.roles.assembly import Assembly
from tailrace.cli.roles.sources import source_url
from tailrace.errors import NotFound
from tailrace.store.service import StoreService
from tailrace.wire.callers import Action, Caller


class StoreElsewhere(StoreService):
    """Stands where a node's store would stand, and has none."""

    def __init__(self, assembly: Assembly, address: str) -> None:
        super().__init__({})
        self._address = address
        self._sources = {
            name: source_url(assembly, name, settings, None)
            for name, settings in assembly.configuration.dataset.items()
        }

    def _store(self, caller: Caller, action: Action, dataset: str) -> NoReturn:
        caller.require(action, dataset)
        raise NotFound(what="a store at", name=self._address, remedy=f"this node has none; {self._remedy(dataset)}")

    def _remedy(self, dataset: str) -> str:
        url = self._sources.get(dataset)
        if url is None:
            return f"nor a dataset {dataset!r}: it publishes {', '.join(sorted(self._sources))}"
        if url.startswith("rocksdb://"):
            return f"{dataset!r} is written by the process that opens {url}"
        return f"{dataset!r} is written at {url}"
