"""What goes down a stream and when: heartbeats, losses in their place, letters by the batch, an end that frees."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from tailrace.errors import LogDiverged
from tailrace.publisher.caravan import Entry
from tailrace.publisher.sent import PLACES_A_LEVEL
from tailrace.publisher.stream import Letters, Stream
from tailrace.sources.interface import LogBatch
from tailrace.updates.position import Checkpoint, Marker, Position, Witness
from tailrace.updates.schema import EMPTY_UPDATES
from tailrace.wire.messages import Acknowledge, DataLoss, Heartbeat, Opened, Redelivery, Token, Updates
from tests.publisher.conftest import DEADLINE_S, Listener, Rig, append_behind_gap


def acknowledge(rig: Rig, listener: Listener, token: int) -> None:
    rig.publisher.acknowledge(Acknowledge(session=listener.stream.session, epoch=rig.epoch, token=token))


def patient(rig: Rig, **more: float) -> None:
    """Restarts the publisher with other settings."""
    rig.settings = msgspec.structs.replace(rig.settings, **more)
    rig.restart()


def advance_to(stream: Stream, sequence: int) -> None:
    checkpoint = Checkpoint(Position(0, sequence), Witness("", 1))
    stream._advance(Entry(stream.sent, LogBatch(EMPTY_UPDATES, checkpoint, 0, at_head=True)), EMPTY_UPDATES)


def test_heartbeats_come_while_a_busy_log_holds_nothing_for_the_filter(rig: Rig) -> None:
    patient(rig, marker_interval_s=3600.0)
    listener = rig.subscribe(filter="n = 'none'")
    listener.next(Opened)
    listener.next(Heartbeat)
    quiet = threading.Event()

    def write() -> None:
        while not quiet.wait(0.002):
            rig.source.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    ending = threading.Timer(DEADLINE_S / 2, quiet.set)  # only a stream that is silent gets that far
    ending.start()
    try:
        for _ in range(5):
            listener.next(Heartbeat)
        assert not quiet.is_set()
    finally:
        quiet.set()
        ending.cancel()
        writer.join()


def test_a_loss_is_told_behind_what_came_before_it(rig: Rig) -> None:
    patient(rig, marker_interval_s=3600.0)
    rig.source.append(3)
    append_behind_gap(rig.source, 4, 2)
    listener = rig.subscribe()
    listener.next(Opened)
    first = listener.next(Updates)[0].column("sequence").to_pylist()
    _, token = listener.next(Token)
    _, loss = listener.next(DataLoss)
    assert isinstance(token, Token)
    assert isinstance(loss, DataLoss)
    assert first == [1, 2, 3]
    assert token.checkpoint.position == Position(0, 3)
    assert (loss.after, loss.until) == (Position(0, 3), Position(0, 7))
    acknowledge(rig, listener, token.token)
    acknowledge(rig, listener, loss.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 7)
    assert listener.sequences(9) == [8, 9]


def test_what_is_taken_at_once_is_still_cut_at_a_loss(rig: Rig) -> None:
    rig.source.append(3)
    append_behind_gap(rig.source, 4, 2)
    other = rig.subscribe("other")
    other.sequences(9)  # the window holds all of it
    listener = rig.subscribe()
    listener.next(Opened)
    assert listener.next(Updates)[0].column("sequence").to_pylist() == [1, 2, 3]


def test_rows_that_were_sent_are_sliced_off_the_entry_that_a_stream_boards_at(rig: Rig) -> None:
    rig.source.append(5)
    rig.subscribe("first").sequences(5)
    assert rig.subscribe("second", start="memory@0:3:0").sequences(5) == [4, 5]
    assert rig.source.reads == 1


def test_a_loss_that_lies_before_a_stream_is_none_of_its_own(rig: Rig) -> None:
    """It boards in the middle of a batch that begins with a loss."""
    rig.source.append(3)
    append_behind_gap(rig.source, 4, 3)
    rig.subscribe("all").sequences(10)
    behind = rig.subscribe("behind", start="memory@0:8:0")
    behind.next(Opened)
    assert behind.next(Updates)[0].column("sequence").to_pylist() == [9, 10]


def test_in_another_history_nothing_is_left_out_that_a_flow_had_of_the_first(rig: Rig) -> None:
    rig.source.append(6)
    first = rig.subscribe()
    _, token = first.seen(Token)
    assert isinstance(token, Token)
    acknowledge(rig, first, token.token)
    rig.publisher.application("app").markers[1] = Marker(Checkpoint(Position(0, 0), None))
    listener = rig.subscribe()
    assert listener.sequences(6) == [1, 3, 5]
    rig.source.history = 2
    rig.source.fail_after(Position(0, 6), LogDiverged(line="memory", marker="0:6:0", reason="replaced"))
    _, loss = listener.seen(DataLoss)
    assert isinstance(loss, DataLoss)
    assert "everything that the log holds comes again" in loss.reason
    assert listener.sequences(6) == [1, 2, 3, 4, 5, 6]


def test_acknowledging_a_loss_skips_nothing_whose_token_is_deferred(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    assert listener.sequences(3) == [1, 2, 3]
    append_behind_gap(rig.source, 4, 2)
    _, loss = listener.seen(DataLoss)
    assert isinstance(loss, DataLoss)
    acknowledge(rig, listener, loss.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 0)
    _, token = listener.seen(Token)
    assert isinstance(token, Token)
    acknowledge(rig, listener, token.token)
    assert rig.publisher.application("app").acknowledged == Position(0, 9)


def test_a_caravan_does_not_wait_for_a_stream_that_ended_and_never_comes_round(rig: Rig) -> None:
    rig.source.append(3)
    listener = rig.subscribe()
    listener.sequences(3)  # its generator is not resumed again, as gRPC does with a client that stopped reading
    assert rig.publisher.caravans.count == 1
    rig.clock.advance(rig.settings.lease_s + rig.settings.lease_margin_s + 1)
    rig.publisher.tick()
    deadline = time.monotonic() + DEADLINE_S
    while rig.publisher.caravans.count:
        assert time.monotonic() < deadline


def test_a_place_is_looked_up_while_the_stream_goes_on(rig: Rig) -> None:
    stream = rig.subscribe().stream
    for sequence in range(1, 10_000):
        advance_to(stream, sequence)
    ended = threading.Event()

    def go_on() -> None:
        sequence = 10_000
        while not ended.is_set():
            advance_to(stream, sequence)
            sequence += 1

    often, runner = sys.getswitchinterval(), threading.Thread(target=go_on)
    sys.setswitchinterval(1e-6)
    runner.start()
    try:
        for _ in range(100):
            assert stream.checkpoint_at(Position(0, 1)) == Checkpoint(Position(0, 1), Witness("", 1))
    finally:
        ended.set()
        runner.join()
        sys.setswitchinterval(often)


@pytest.mark.parametrize("position", [1, 1000, 50_000, 99_999])
def test_however_old_a_place_is_the_marker_can_move_near_it(rig: Rig, position: int) -> None:
    stream = rig.subscribe().stream
    for sequence in range(1, 100_001):
        advance_to(stream, sequence)
    found = stream.checkpoint_at(Position(0, position))
    assert found is not None
    age = 100_000 - position
    assert position - 2 * age // PLACES_A_LEVEL <= found.position.sequence <= position
    assert max(map(len, stream._trail._levels)) <= PLACES_A_LEVEL


def test_letters_are_loaded_when_their_turn_comes_and_leave_room_for_updates(rig: Rig) -> None:
    rig.source.append(3)
    other = rig.subscribe("other")
    other.next(Opened)
    other.next(Updates)  # so that the caravan has read the log
    listener = rig.subscribe()
    listener.next(Opened)
    loaded: list[int] = []

    def letters() -> Iterator[Letters]:
        for number in range(1000):
            loaded.append(number)
            yield Letters((number,), EMPTY_UPDATES)

    listener.stream.post(letters())
    assert listener.next(Redelivery)[1] == Redelivery(letters=[0])
    assert listener.next(Updates)[0].column("sequence").to_pylist() == [1, 2, 3]
    assert len(loaded) == 1


class Taker:
    """A subscriber that takes as much as it is told to, and notes what it got and which caravans brought it."""

    def __init__(self, rig: Rig, application: str) -> None:
        self.listener = rig.subscribe(application)
        self.sequences: list[int] = []
        self.caravans: set[str] = set()
        self.moved_off = 0

    def take(self, messages: int) -> None:
        for _ in range(messages):
            batch, _ = next(self.listener._messages)
            self.sequences += batch.column("sequence").to_pylist()
            stream = self.listener.stream
            self.caravans.add(stream.riding)
            self.moved_off += stream.moved_off

    def take_until(self, sequence: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self.sequences or self.sequences[-1] < sequence:
            assert time.monotonic() < deadline, self.sequences[-3:]
            self.take(1)


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_leaves_its_caravan_and_boards_again_gets_everything_once_and_in_order(
    rig: Rig, seed: int
) -> None:
    patient(rig, window_bytes=64 << 10, batch_bytes=8 << 10, heartbeat_s=0.01, marker_interval_s=3600.0)
    chance = random.Random(seed)
    fast, slow = Taker(rig, "fast"), Taker(rig, "slow")
    fast.take(1)
    slow.take(1)
    for _ in range(12):
        for _ in range(chance.randrange(10, 30)):
            rig.source.append(chance.randrange(1, 9), size_bytes=400)
        fast.take_until(rig.source.bounds().through.sequence)
        slow.take(chance.randrange(6))
        if chance.random() < 0.4:
            slow.take_until(rig.source.bounds().through.sequence)
            slow.take(2)  # at the head it looks for the lead
    head = rig.source.bounds().through.sequence
    for taker in (fast, slow):
        taker.take_until(head)
        assert taker.sequences == list(range(1, head + 1))
    assert slow.moved_off > 0
    assert len(slow.caravans - {""}) > 1
    assert slow.listener.stream.riding == fast.listener.stream.riding, "it came back to the lead"
