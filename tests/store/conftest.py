"""Stores in temporary folders, and a hand on their fsync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.runtime.clock import SystemClock
from tailrace.store.database import Database
from tailrace.store.engine import Store
from tailrace.store.options import StoreOptions

WAIT_S = 30.0  # how long a test waits for what should come at once (or after kernels were compiled)


class HeldSyncer:
    """Fsyncs for real, but only while it is let; counts, and says when someone waits for it."""

    def __init__(self, *, held: bool = False) -> None:
        self.calls = 0
        self.asked = threading.Semaphore(0)  # one more for each fsync that was asked for
        self.error: Exception | None = None
        self._let = threading.Event()
        if not held:
            self._let.set()

    def __call__(self, database: Database) -> None:
        self.calls += 1
        self.asked.release()
        assert self._let.wait(WAIT_S), "nobody let the fsync go on"
        if self.error is not None:
            raise self.error
        database.sync()

    def hold(self) -> None:
        self._let.clear()

    def release(self) -> None:
        self._let.set()

    def until_asked(self) -> None:
        assert self.asked.acquire(timeout=WAIT_S), "nobody asked for an fsync"


class ImpatientClock(SystemClock):
    """Every interval passes at once. `rests` is set when someone waits without one: for an event and nothing else."""

    def __init__(self) -> None:
        self.rests = threading.Event()

    def wait(self, event: threading.Event, timeout_s: float | None = None) -> bool:
        if timeout_s is None:
            self.rests.set()
            return event.wait()
        return event.is_set()


Opens = Callable[..., Store]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Opens]:
    """Opens stores that are closed at the end; the folder is always the same one."""
    opened: list[Store] = []

    def opens(path: Path = tmp_path / "store", **given: Any) -> Store:
        options = StoreOptions(**{name: given.pop(name) for name in list(given) if name in StoreOptions.__slots__})
        opened.append(Store.open(path, era=given.pop("era", 1), options=options, **given))
        return opened[-1]

    yield opens
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opens) -> Store:
    return open_store()
