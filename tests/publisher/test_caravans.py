"""A log that cannot be read: who waits for it, for how long, and who does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from threading import Event

import msgspec
import pytest

from tailrace.errors import LogCorrupt, LogDiverged
from tailrace.sources.interface import Address, LogBatch
from tailrace.testing.memory_source import MemorySource
from tailrace.updates.position import Marker, Position
from tailrace.wire.messages import DataLoss, Heartbeat, Opened
from tests.publisher.conftest import DEADLINE_S, Rig


class TornSource(MemorySource):
    """Its beginning, up to sequence 3, is damaged."""

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = 1 << 20) -> Iterator[LogBatch]:
        if after < Position(0, 3):
            raise LogCorrupt(path="000004.log", offset=77, reason="checksum")
        return super().read(after, stop=stop, max_batch_bytes=max_batch_bytes)


class ReplacedSource(MemorySource):
    """`locate` finds nothing wrong, and `read` always does."""

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = 1 << 20) -> Iterator[LogBatch]:
        self.reads += 1
        raise LogDiverged(line=self.line, marker=str(after), reason="another log stands there")


def test_one_place_that_cannot_be_read_holds_up_nobody_elsewhere(rig: Rig) -> None:
    torn = TornSource(shards=2)
    torn.append(3)
    torn.append(3)
    rig.restart(torn)
    stuck = rig.subscribe("stuck")
    while not stuck.stream.blocked_by:
        next(stuck._messages)
    assert rig.subscribe("fine", start="memory@0:3:0").sequences(6) == [4, 5, 6]
    assert "000004.log at offset 77" in stuck.stream.blocked_by
    assert "000004.log at offset 77" in rig.publisher.caravans.error


def test_a_long_look_up_for_one_stream_does_not_silence_another(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.source.append(3)
    rig.source.append(3)
    slow, other = rig.subscribe("slow"), rig.subscribe("other", start="memory@0:3:0")
    slow.next(Opened)
    other.next(Opened)
    looking, found = threading.Event(), threading.Event()
    locate = rig.source.locate

    def scan(marker: Marker) -> Address:
        if not marker.position.sequence:
            looking.set()
            assert found.wait(DEADLINE_S)
        return locate(marker)

    monkeypatch.setattr(rig.source, "locate", scan)
    scanning = threading.Thread(target=lambda: slow.sequences(3))
    scanning.start()
    try:
        assert looking.wait(DEADLINE_S)
        other.next(Heartbeat)
        assert "looked up" in other.stream.blocked_by
    finally:
        found.set()
        scanning.join()
    assert other.sequences(6) == [4, 5, 6]


def test_a_log_that_diverges_again_and_again_is_not_read_in_a_tight_loop(rig: Rig) -> None:
    replaced = ReplacedSource(shards=2)
    replaced.append(3)
    rig.restart(replaced)
    listener = rig.subscribe()
    deadline = time.monotonic() + DEADLINE_S
    while not listener.stream.blocked_by:
        assert time.monotonic() < deadline
        next(listener._messages)
    assert replaced.reads <= 3


def test_a_loss_is_told_once_though_reading_behind_it_fails(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.next(Opened)
    listener.sequences(3)
    rig.source.fail_after(Position(0, 3), LogCorrupt(path="x", offset=1, reason="held"))
    rig.source.append(3)
    rig.source.append(1)
    rig.source.truncate(Position(0, 6))
    rig.clock.advance(10)
    told = 0
    reads = rig.source.reads
    deadline = time.monotonic() + DEADLINE_S
    while rig.source.reads < reads + 5:  # tries behind the loss
        assert time.monotonic() < deadline
        told += isinstance(next(listener._messages)[1], DataLoss)
        rig.clock.advance(rig.settings.retry_failed_source_s / 2)
    assert told == 1


def test_streams_that_come_together_share_one_caravan(rig: Rig) -> None:
    for _ in range(10):
        rig.source.append(5)
    listeners = [rig.subscribe(f"app{number}") for number in range(12)]
    for listener in listeners:
        listener.next(Opened)
    found: list[list[int]] = []
    readers = [threading.Thread(target=lambda one=one: found.append(one.sequences(50))) for one in listeners]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(20)
    assert found == [list(range(1, 51))] * 12
    assert rig.source.reads == 1


def test_there_are_no_more_caravans_than_allowed(rig: Rig) -> None:
    rig.settings = msgspec.structs.replace(rig.settings, max_caravans=1)
    rig.restart()
    rig.source.append(3)
    ahead = rig.subscribe("ahead", start="latest")
    ahead.next(Opened)
    ahead.next(Heartbeat)
    behind = rig.subscribe("behind")
    while not behind.stream.blocked_by:
        next(behind._messages)
    assert "max_caravans" in behind.stream.blocked_by
    assert rig.publisher.caravans.count == 1
    ahead.close()
    assert behind.sequences(3) == [1, 2, 3]
