from __future__ import annotations

import os
import signal
import sys
from threading import Event, Thread, current_thread, get_ident
from traceback import walk_stack

import pytest

from tailrace.errors import WorkersStuck
from tailrace.runtime.tasks import Workers, drain_on_signals


def test_threads_carry_the_group_and_their_own_name() -> None:
    names: list[str] = []
    with Workers("publisher") as workers:
        workers.start("lead", lambda: names.append(current_thread().name)).join(5)
    assert names == ["publisher/lead"]


def test_closing_stops_every_thread() -> None:
    workers = Workers("publisher")
    threads = [workers.start(str(number), workers.stop.wait) for number in range(3)]
    workers.close()
    assert [thread.is_alive() for thread in threads] == [False, False, False]
    assert workers.not_ready() == []


def test_a_thread_that_dies_stops_the_others_and_surfaces() -> None:
    def fail() -> None:
        raise RuntimeError("the log is gone")

    workers = Workers("publisher")
    other = workers.start("other", workers.stop.wait)
    workers.start("lead", fail)
    other.join(5)
    assert not other.is_alive()
    assert workers.not_ready() == ["lead failed: RuntimeError: the log is gone"]
    with pytest.raises(RuntimeError, match="the log is gone"):
        workers.join()


def test_a_thread_that_does_not_stop_is_named() -> None:
    release = Event()
    workers = Workers("publisher")
    workers.start("deaf", release.wait)
    with pytest.raises(WorkersStuck, match="publisher/deaf"):
        workers.close(timeout_s=0.01)
    release.set()
    workers.join()


def test_the_body_s_error_is_kept_when_a_thread_failed_too() -> None:
    def fail() -> None:
        raise RuntimeError("second")

    with pytest.raises(ValueError, match="first") as caught, Workers("publisher") as workers:  # noqa: PT012
        workers.start("lead", fail).join(5)
        raise ValueError("first")
    assert caught.value.__notes__ == ["while stopping publisher: RuntimeError: second"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(number: signal.Signals) -> None:
    stop = Event()
    before = signal.getsignal(number)
    with drain_on_signals(stop):
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    assert signal.getsignal(number) is before


def test_a_signal_drains_that_the_main_thread_sleeps_through() -> None:
    """Another thread takes the signal while the main thread blocks, so that nothing makes it run a Python handler."""
    stop = Event()
    main = get_ident()

    def waits() -> bool:
        """Whether the main thread is in the wait below, and not still in `Thread.start`."""
        callers = [frame.f_code.co_name for frame, _ in walk_stack(sys._current_frames()[main])]
        return callers[:2] == ["wait", "wait"] and callers[2] != "start"

    def take_one() -> None:
        while not waits():
            os.sched_yield()
        signal.pthread_kill(get_ident(), signal.SIGTERM)

    with drain_on_signals(stop):
        Thread(target=take_one).start()
        assert stop.wait(5)


def test_a_second_signal_interrupts() -> None:
    stop = Event()
    with drain_on_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_without_a_signal_nothing_is_drained() -> None:
    stop = Event()
    with drain_on_signals(stop):
        pass
    assert not stop.is_set()
