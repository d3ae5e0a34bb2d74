"""Starts the processes of a node, watches them, and takes them down with itself.

Each child has a thread that starts it, passes its output on line by line, and starts it again when it dies: with
backoff, and a limited number of times in a row. Children get SIGTERM first and are killed at a deadline, by their own
process id; each is a process group of its own, so that Ctrl-C reaches this process alone. They do not outlive it,
however it ends: each begins as `orphan.py`, which asks the kernel for a signal at its parent's death and then becomes
the child's program. (Linux ties that signal to the thread that started the child; that is why the thread stays as long
as the child does. On another system the shim has no effect.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import IO, Final, Literal

from tailrace.errors import ProcessFailed
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from tailrace.runtime.logging import get_log

log = get_log(__name__)

MAX_LINE_BYTES: Final = 64 * 1024
STOP_TIMEOUT_S: Final = 15.0
_OUTPUT_AFTER_DEATH_S: Final = 1.0  # a grandchild may hold the pipe open longer
_SHIM: Final = str(Path(__file__).with_name("orphan.py"))

State = Literal["starting", "running", "waiting", "stopped", "failed"]
Output = Callable[[str, str], None]  # (child's name, one line without its end)


@dataclass(frozen=True, slots=True)
class Restarts:
    """When a child that died is started again."""

    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.2, limit_s=10.0))
    max_in_a_row: int = 20
    healthy_after_s: float = 30.0  # having run this long, it counts as recovered
    final_codes: frozenset[int] = frozenset({2})  # exit codes by which a child says: do not start me again


@dataclass(frozen=True, slots=True)
class ChildStatus:
    name: str
    state: State
    pid: int | None
    restarts: int
    reason: str  # how it ended last; empty if it never did


class Child:
    """One supervised program. Its thread is the only one that starts it."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        output: Output,
        environment: Mapping[str, str] | None = None,
        restarts: Restarts | None = None,
        random: Random | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self._argv = list(argv)
        self._environment = dict(environment) if environment is not None else None
        self._output = output
        self._restarts = restarts or Restarts()
        self._retry = Retry(self._restarts.backoff, random)
        self._clock = clock
        self._stop = Event()
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._status = ChildStatus(name, "starting", None, 0, "")
        self._thread = Thread(target=self._keep_running, name=f"child/{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def status(self) -> ChildStatus:
        return self._status

    def terminate(self) -> None:
        """Asks the child to end, and does not start it again."""
        self._send(signal.SIGTERM, for_good=True)

    def kill(self) -> None:
        self._send(signal.SIGKILL, for_good=True)

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to the running program, if there is one; it is started again if that ends it."""
        self._send(number, for_good=False)

    def join(self, timeout_s: float) -> bool:
        """Waits for the end after `terminate` or `kill`; returns whether it came."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _send(self, number: signal.Signals, *, for_good: bool) -> None:
        with self._lock:
            if for_good:
                self._stop.set()
            if self._process is not None:
                self._process.send_signal(number)  # looks first whether the process still is ours

    def _keep_running(self) -> None:
        restarts = 0
        reason = ""
        while not self._stop.is_set():
            began = self._clock.monotonic()
            code, reason = self._run_once(restarts, reason)
            if self._stop.is_set():
                break
            if self._clock.monotonic() - began >= self._restarts.healthy_after_s:
                self._retry.succeeded()
            if code in self._restarts.final_codes or self._retry.attempts >= self._restarts.max_in_a_row:
                log.error("process is not started again", name=self.name, reason=reason, restarts=restarts)
                self._status = ChildStatus(self.name, "failed", None, restarts, reason)
                return
            delay_s = self._retry.failed()
            log.warning("process died and is started again", name=self.name, reason=reason, delay_s=delay_s)
            self._status = ChildStatus(self.name, "waiting", None, restarts, reason)
            self._clock.wait(self._stop, delay_s)
            restarts += 1
        self._status = ChildStatus(self.name, "stopped", None, restarts, reason)

    def _run_once(self, restarts: int, last_reason: str) -> tuple[int | None, str]:
        """Runs the program to its end; returns its exit code and how it ended."""
        try:
            with self._lock:
                if self._stop.is_set():
                    return None, last_reason
                process = self._process = self._spawn()
        except OSError as error:
            return None, f"cannot be started: {error.strerror}: {self._argv[0]}"
        self._status = ChildStatus(self.name, "running", process.pid, restarts, last_reason)
        assert process.stdout is not None
        reader = Thread(target=self._pass_on, args=(process.stdout,), name=f"output/{self.name}", daemon=True)
        reader.start()
        code = process.wait()
        with self._lock:
            self._process = None
        reader.join(_OUTPUT_AFTER_DEATH_S)
        return code, describe_exit(code)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), *self._argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            process_group=0,
        )

    def _pass_on(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(MAX_LINE_BYTES):
                self._output(self.name, line.rstrip(b"\r\n").decode(errors="replace"))


class Supervisor:
    """The children of one node."""

    def __init__(self, children: Sequence[Child], *, clock: Clock = SYSTEM_CLOCK) -> None:
        names = [child.name for child in children]
        assert len(set(names)) == len(names), f"two children have one name: {names}"
        self.children = list(children)
        self._clock = clock

    def start(self) -> None:
        for child in self.children:
            child.start()

    def statuses(self) -> list[ChildStatus]:
        return [child.status() for child in self.children]

    def not_ready(self) -> list[str]:
        """A readiness check: the children that do not run."""
        return [
            f"{status.name} is {status.state}" + (f": {status.reason}" if status.reason else "")
            for status in self.statuses()
            if status.state != "running"
        ]

    def raise_failure(self) -> None:
        """Raises `ProcessFailed` if a child was given up."""
        for status in self.statuses():
            if status.state == "failed":
                raise ProcessFailed(name=status.name, reason=f"{status.reason}; started {status.restarts + 1} times")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM to all, last started first; whoever is left at the deadline is killed."""
        deadline = Deadline(timeout_s, self._clock)
        for child in reversed(self.children):
            child.terminate()
        late = [child for child in self.children if not child.join(deadline.left_s())]
        for child in late:
            log.warning("process did not end in time and is killed", name=child.name, timeout_s=timeout_s)
            child.kill()
        for child in late:
            child.join(timeout_s)

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def to_stderr(name: str, line: str) -> None:
    """Passes a child's line on with its name in front."""
    sys.stderr.write(f"{name:>12} | {line}\n")


def describe_exit(code: int) -> str:
    """How a process ended, in words: `exit code 3`, `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"
