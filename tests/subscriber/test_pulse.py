"""When signs of life are sent, on a clock that jumps to the end of every wait."""

from __future__ import annotations

import threading

import pytest

from tailrace.errors import Disconnected, Fenced, TailraceError
from tailrace.subscriber.lease import Lease
from tailrace.subscriber.pulse import Pulse
from tailrace.updates.position import Position


class JumpingClock:
    """Every wait for something that has not happened takes exactly its time, at once."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now

    def wait(self, event: threading.Event, timeout_s: float | None = None) -> bool:
        if event.is_set():
            return True
        assert timeout_s is not None
        self.now += timeout_s
        return False


class Scene:
    """A pulse that runs until it has sent `signs`; `busy` tells whether the reader is in the application."""

    def __init__(self, *, signs: int, busy: bool, lease_s: float = 8.0, answer: TailraceError | None = None) -> None:
        self.clock = JumpingClock()
        self.sent_at: list[float] = []
        self.progress: list[Position | None] = []
        self.moves = False
        self.signs = signs
        self.answer = answer
        self.busy = busy
        self.cancelled = threading.Event()
        self.enough = threading.Event()
        self.lease = Lease(self.clock, self.clock.now)
        self.lease.opened(lease_s)
        self.pulse = Pulse(self.lease, self.clock, self._send, self._cancel)

    def _send(self, progress: Position | None, timeout_s: float) -> None:
        self.sent_at.append(self.clock.now)
        self.progress.append(progress)
        self.pulse.waiting_since = None if self.busy else self.clock.now
        if len(self.sent_at) == self.signs:
            self.enough.set()
            self.pulse._stopped.set()
        elif self.moves:
            self.pulse.moved(Position(0, len(self.sent_at)))
        if self.answer is not None:
            raise self.answer

    def _cancel(self) -> None:
        self.cancelled.set()
        self.enough.set()

    def run(self) -> Scene:
        self.pulse.opened()
        self.pulse.start()
        assert self.enough.wait(10)
        self.pulse.stop()
        return self

    def gaps(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in zip(self.sent_at, self.sent_at[1:], strict=False)]


@pytest.mark.parametrize("busy", [True, False])
def test_signs_come_at_least_three_times_a_lease_when_nothing_moves(busy: bool) -> None:
    gaps = Scene(signs=12, busy=busy).run().gaps()
    assert max(gaps) <= 8.0 / 3
    assert min(gaps) >= 1.0


def test_a_short_lease_gets_signs_as_often_as_it_needs() -> None:
    assert max(Scene(signs=12, busy=True, lease_s=1.5).run().gaps()) <= 0.5


def test_progress_is_told_twenty_times_a_second_once_caught_up() -> None:
    scene = Scene(signs=12, busy=False)
    scene.moves = True
    assert set(scene.run().gaps()) == {0.05}
    assert scene.progress[1:3] == [Position(0, 1), Position(0, 2)]


def test_progress_is_told_four_times_a_second_while_busy() -> None:
    scene = Scene(signs=12, busy=True)
    scene.moves = True
    assert set(scene.run().gaps()) == {0.25}


def test_an_unanswered_sign_is_sent_again_until_the_lease_is_over() -> None:
    scene = Scene(signs=100, busy=True, answer=Disconnected(address="here:1", reason="cut")).run()
    assert scene.cancelled.is_set()
    assert len(scene.sent_at) >= 3
    assert scene.lease.over
    with pytest.raises(Fenced, match="lease of 8 s"):
        scene.lease.check()


def test_a_refused_sign_takes_the_lease_away_at_once() -> None:
    scene = Scene(signs=100, busy=True, answer=Fenced(what="session", reason="elsewhere")).run()
    assert len(scene.sent_at) == 1
    with pytest.raises(Fenced, match="elsewhere"):
        scene.lease.check()


def test_a_reader_that_waits_longer_than_a_lease_is_cancelled() -> None:
    scene = Scene(signs=1000, busy=True)
    scene.pulse.waiting_since = scene.clock.now

    def send(progress: Position | None, timeout_s: float) -> None:
        scene.sent_at.append(scene.clock.now)

    scene.pulse._send = send
    scene.run()
    assert scene.cancelled.is_set()
    with pytest.raises(Disconnected, match="silent for 8 s"):
        scene.lease.check()


def test_a_reader_that_waits_in_vain_for_its_session_to_open_is_cancelled() -> None:
    scene = Scene(signs=1, busy=True)
    scene.lease = Lease(scene.clock, scene.clock.now)
    scene.pulse = Pulse(scene.lease, scene.clock, scene._send, scene._cancel)
    scene.pulse.waiting_since = scene.clock.now
    scene.pulse.start()
    assert scene.enough.wait(10)
    scene.pulse.stop()
    assert scene.cancelled.is_set()
    assert scene.sent_at == []
    with pytest.raises(Disconnected, match="silent for 10 s"):
        scene.lease.check()


def test_nothing_is_sent_before_the_session_is_known() -> None:
    scene = Scene(signs=1, busy=True)
    scene.pulse.start()
    scene.pulse.stop()
    assert scene.sent_at == []
