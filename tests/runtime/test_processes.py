from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from queue import Queue

import psutil
import pytest

from tailrace.errors import ProcessFailed
from tailrace.runtime.backoff import Backoff
from tailrace.runtime.processes import Child, Restarts, Supervisor, describe_exit
from tailrace.testing.clock import ManualClock

WAIT_S = 10.0
SAYS_PID = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
DRAINS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print('drained', flush=True), sys.exit(0)))
print('up', flush=True)
while True: signal.pause()
"""
DEAF = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
)
QUICK = Restarts(Backoff(0.001, 0.002), max_in_a_row=3)


class Lines:
    """What the children said, as it comes."""

    def __init__(self) -> None:
        self._queue: Queue[tuple[str, str]] = Queue()

    def __call__(self, name: str, line: str) -> None:
        self._queue.put((name, line))

    def next(self) -> tuple[str, str]:
        return self._queue.get(timeout=WAIT_S)


@pytest.fixture
def lines() -> Lines:
    return Lines()


def python(name: str, program: str, lines: Lines, restarts: Restarts = QUICK, argv: Sequence[str] = ()) -> Child:
    return Child(name, [sys.executable, "-c", program, *argv], output=lines, restarts=restarts)


def test_output_is_passed_on_line_by_line_with_the_child_s_name(lines: Lines) -> None:
    program = "import sys; print('one'); sys.stdout.flush(); print('two', file=sys.stderr, flush=True); " + SAYS_PID
    with Supervisor([python("store", program, lines)]):
        assert [lines.next(), lines.next()] == [("store", "one"), ("store", "two")]
        lines.next()


def test_a_child_that_is_killed_is_started_again(lines: Lines) -> None:
    with Supervisor([python("store", SAYS_PID, lines)]) as supervisor:
        first = int(lines.next()[1])
        assert supervisor.statuses()[0].pid == first
        os.kill(first, signal.SIGKILL)
        second = int(lines.next()[1])
        assert second != first
        status = supervisor.statuses()[0]
        assert (status.state, status.restarts, status.reason) == ("running", 1, "killed by SIGKILL")
        assert supervisor.not_ready() == []


def test_stopping_lets_children_drain(lines: Lines) -> None:
    supervisor = Supervisor([python("store", DRAINS, lines)])
    supervisor.start()
    lines.next()
    supervisor.stop()
    assert lines.next() == ("store", "drained")
    assert [(status.state, status.reason) for status in supervisor.statuses()] == [("stopped", "exit code 0")]


def test_a_child_that_does_not_end_is_killed_at_the_deadline(lines: Lines) -> None:
    supervisor = Supervisor([python("store", DEAF, lines)])
    supervisor.start()
    lines.next()
    supervisor.stop(timeout_s=0.1)
    assert supervisor.statuses()[0].reason == "killed by SIGKILL"


def test_a_child_that_dies_too_often_is_given_up(lines: Lines) -> None:
    child = python("store", "import os; print('up', flush=True); os._exit(3)", lines)
    supervisor = Supervisor([child])
    supervisor.start()
    assert child.join(WAIT_S)
    assert [lines.next()[1] for _ in range(4)] == ["up"] * 4
    assert supervisor.not_ready() == ["store is failed: exit code 3"]
    with pytest.raises(ProcessFailed, match="process store: exit code 3; started 4 times"):
        supervisor.raise_failure()


def test_a_child_that_says_so_is_not_started_again(lines: Lines) -> None:
    child = python("store", "raise SystemExit(2)", lines)
    child.start()
    assert child.join(WAIT_S)
    assert (child.status().state, child.status().restarts) == ("failed", 0)


def test_a_program_that_does_not_exist_is_named(lines: Lines) -> None:
    child = Child("store", ["/no/such/program"], output=lines, restarts=QUICK)
    child.start()
    assert child.join(WAIT_S)
    assert lines.next() == ("store", "/no/such/program: No such file or directory")


def test_a_child_waits_out_its_backoff(lines: Lines) -> None:
    clock = ManualClock()
    restarts = Restarts(Backoff(60, 60), max_in_a_row=3)
    child = Child("store", ["true"], output=lines, restarts=restarts, clock=clock)
    child.start()
    clock.until_waiting()
    assert (child.status().state, child.status().restarts) == ("waiting", 0)
    clock.advance(60)
    child.terminate()
    assert child.join(WAIT_S)


def test_children_die_with_their_parent(lines: Lines) -> None:
    """Even if the parent is killed and can do nothing about it."""
    program = (
        "import signal, sys; from tailrace.runtime.processes import Child, Supervisor\n"
        "def say(name, line): print(line, flush=True)\n"
        f"Supervisor([Child('a', [sys.executable, '-c', {DEAF!r}], output=say)]).start()\n"
        "signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"up\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait(WAIT_S)
        child.wait(WAIT_S)
    assert not child.is_running()


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (-9, "killed by SIGKILL"), (-60, "killed by signal 60")]
)
def test_an_end_is_described(code: int, text: str) -> None:
    assert describe_exit(code) == text
