"""A dataset's publisher on a log in memory, driven message by message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.publisher.applications import ApplicationRecord
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.ledger import open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.settings import PublisherSettings
from tailrace.publisher.stream import Stream
from tailrace.runtime.clock import SystemClock
from tailrace.runtime.sqlite import Database
from tailrace.sources.interface import Lost
from tailrace.testing.memory_source import MemorySource
from tailrace.updates.position import Position
from tailrace.wire.messages import Down, Heartbeat, Subscribe, Updates

DEADLINE_S = 10.0
SETTINGS = PublisherSettings(heartbeat_s=0.02, marker_interval_s=0.0, patience_s=0.05)


def append_behind_gap(source: MemorySource, missing: int, count: int) -> None:
    """Appends `count` updates behind `missing` sequence numbers that the log does not hold."""
    with source._changed:
        lost = Lost(Position(source.era, source._head), Position(source.era, source._head + missing), "bypassed")
        source._head += missing
        source.append(count)
        source._batches[-1] = replace(source._batches[-1], loss=lost)


class MemoryRecords:
    """Application records without a coordinator."""

    def __init__(self) -> None:
        self.records: dict[str, ApplicationRecord] = {}

    def of(self, dataset: str) -> list[ApplicationRecord]:
        return list(self.records.values())

    def create(self, record: ApplicationRecord) -> ApplicationRecord:
        return self.records.setdefault(record.application, record)


class PushedClock(SystemClock):
    """Real time, which a test can push forward: streams' heartbeats need it to pass by itself."""

    def __init__(self) -> None:
        self._pushed_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._pushed_s

    def advance(self, seconds: float) -> None:
        self._pushed_s += seconds


class Listener:
    """Reads a stream's messages as its subscriber would see them."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._messages = stream.messages()

    def next(self, kind: type[Down]) -> tuple[pa.RecordBatch, Down]:
        """The next message of a kind; heartbeats, and nothing else, are passed over on the way."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            batch, message = next(self._messages)
            if isinstance(message, kind):
                return batch, message
            assert isinstance(message, Heartbeat), f"waited for {kind.__name__}, got {message}"
        raise AssertionError(f"no {kind.__name__} within {DEADLINE_S} s")

    def seen(self, kind: type[Down]) -> tuple[pa.RecordBatch, Down]:
        """The next message of a kind, whatever comes before it."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            batch, message = next(self._messages)
            if isinstance(message, kind):
                return batch, message
        raise AssertionError(f"no {kind.__name__} within {DEADLINE_S} s")

    def sequences(self, through: int) -> list[int]:
        """Sequence numbers delivered until the log has been read up to `through`; other messages are passed over."""
        found: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            batch, message = next(self._messages)
            if isinstance(message, Updates):
                found += batch.column("sequence").to_pylist()
            if isinstance(message, Updates | Heartbeat) and message.through.sequence >= through:
                return found
        raise AssertionError(f"not at {through} within {DEADLINE_S} s: {found[-3:]}")

    def close(self) -> None:
        self._messages.close()


class Rig:
    """A publisher that can be closed and opened again on the same ledger."""

    def __init__(self, folder: Path, source: MemorySource) -> None:
        self.folder = folder
        self.source = source
        self.clock = PushedClock()
        self.records = MemoryRecords()
        self.before_commit: Callable[[], None] | None = None
        self.settings = SETTINGS
        self.epoch = 0
        self._listeners: list[Listener] = []
        self.open()

    def open(self) -> None:
        self.ledger: Database = open_ledger(self.folder, before_commit=self._before_commit)
        self.epoch += 1
        self.publisher = DatasetPublisher(
            "shop",
            self.source.shards,
            self.source,
            epoch=self.epoch,
            records=self.records,
            markers=MarkerStore(self.ledger),
            dead=DeadLetters(self.ledger, self.clock),
            settings=self.settings,
            clock=self.clock,
        )

    def _before_commit(self) -> None:
        if self.before_commit:
            self.before_commit()

    def subscribe(
        self, application: str = "app", *, subscriber: str = "one", start: str = "earliest", **more: str
    ) -> Listener:
        ask = Subscribe(dataset="shop", application=application, subscriber=subscriber, start=start, **more)
        listener = Listener(self.publisher.subscribe(ask))
        self._listeners.append(listener)
        return listener

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self.publisher.close()
        self.ledger.close()

    def restart(self, source: MemorySource | None = None) -> None:
        self.close()
        self.source = source or self.source
        self.open()


@pytest.fixture
def source() -> MemorySource:
    return MemorySource(shards=2)


@pytest.fixture
def rig(tmp_path: Path, source: MemorySource) -> Iterator[Rig]:
    rig = Rig(tmp_path, source)
    yield rig
    rig.close()
