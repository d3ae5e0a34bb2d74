from __future__ import annotations

from threading import Event, Thread

import pytest

from tailrace.runtime.clock import Deadline, SystemClock
from tailrace.testing.clock import ManualClock


def test_the_system_clock_never_falls() -> None:
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(1000)]
    assert seen == sorted(seen)


def test_waiting_on_the_system_clock_tells_whether_the_event_is_set() -> None:
    event = Event()
    assert SystemClock().wait(event, 0.001) is False
    event.set()
    assert SystemClock().wait(event) is True


def test_a_deadline_passes_when_its_clock_reaches_it() -> None:
    clock = ManualClock()
    deadline = Deadline(3.0, clock)
    assert deadline.left_s() == 3.0
    clock.advance(2.0)
    assert not deadline.passed()
    clock.advance(2.0)
    assert deadline.passed()
    assert deadline.left_s() == 0.0


def test_a_jump_of_the_wall_clock_leaves_monotonic_time_alone() -> None:
    clock = ManualClock()
    deadline = Deadline(3.0, clock)
    clock.jump_wall(-7200)
    assert clock.wall() == 1_700_000_000.0 - 7200
    assert deadline.left_s() == 3.0


def wait_in_thread(clock: ManualClock, event: Event, timeout_s: float | None) -> tuple[Thread, list[bool]]:
    answers: list[bool] = []
    thread = Thread(target=lambda: answers.append(clock.wait(event, timeout_s)))
    thread.start()
    clock.until_waiting()
    return thread, answers


def test_a_thread_waits_on_the_manual_clock_until_it_is_advanced() -> None:
    clock = ManualClock()
    thread, answers = wait_in_thread(clock, Event(), 10.0)
    clock.advance(10.0)
    thread.join(5)
    assert answers == [False]


def test_a_thread_waits_on_the_manual_clock_until_its_event_is_set() -> None:
    clock, event = ManualClock(), Event()
    thread, answers = wait_in_thread(clock, event, None)
    event.set()
    thread.join(5)
    assert answers == [True]


def test_asking_for_waiters_that_do_not_come_fails() -> None:
    with pytest.raises(AssertionError, match="0 threads wait"):
        ManualClock().until_waiting(1, limit_s=0.01)
