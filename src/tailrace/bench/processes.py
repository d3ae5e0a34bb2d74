"""Roles of a bench as processes of their own, commanded over a pipe.

A role is a class; its process builds it and then answers one call after the other. `ask` sends a call, `answer` waits
for what came of it: asking all before awaiting any is how many processes start together. Processes die with the bench
(`runtime/orphan.py`), and end by themselves when their pipe closes. `role.py` is the other side.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tailrace.errors import ProcessFailed
from tailrace.runtime import orphan

START_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 300.0
END_TIMEOUT_S: Final = 20.0
LOG_TAIL_CHARS: Final = 2000
# Libraries that would start a thread when they are imported, before a fork: numpy's, and an allocator in Arrow that is
# not its default one.
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class RoleProcess:
    """One role in a process of its own. `pid` is known once it is `ready`."""

    def __init__(self, name: str, pipe: Connection[Any, Any], log: Path) -> None:
        self.name = name
        self.pid = 0
        self._pipe = pipe
        self._log = log

    def ready(self) -> None:
        """Returns once the role is built."""
        if not self.pid:
            self.pid = self.answer(START_TIMEOUT_S)

    def ask(self, method: str, **arguments: Any) -> None:
        try:
            self._pipe.send((method, arguments))
        except OSError as error:
            raise self._failed(f"cannot be asked for {method}: {error}") from error

    def answer(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        if not self._pipe.poll(timeout_s):
            raise self._failed(f"no answer within {timeout_s:g} s")
        try:
            kind, value = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._failed("ended") from error
        if kind == "error":
            self._pipe.poll(END_TIMEOUT_S)  # until it has ended, and its traceback is in the log
            raise self._failed(value)
        return value

    def call(self, method: str, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any) -> Any:
        self.ask(method, **arguments)
        return self.answer(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def release(self) -> None:
        """Lets the role end in its own way, also if it was stopped."""
        self._pipe.close()
        if self.pid:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)

    def _failed(self, reason: str) -> ProcessFailed:
        written = self._log.read_text(errors="replace")[-LOG_TAIL_CHARS:]
        return ProcessFailed(name=self.name, reason=f"{reason}\n{written}".rstrip())


class RoleGroup:
    """One started program, and the roles that it became: `role.py` explains how one becomes many."""

    def __init__(self, names: Sequence[str], role: str, log: Path, arguments: dict[str, Any]) -> None:
        pipes = [Pipe() for _ in names]
        theirs = [their_end.fileno() for _, their_end in pipes]
        command = [sys.executable, "-m", "tailrace.bench.role", role, *map(str, theirs)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", orphan.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=theirs,
                env={**os.environ, **(ONE_THREAD if len(names) > 1 else {})},
            )
        self.roles: list[RoleProcess] = []
        for name, (ours, their_end) in zip(names, pipes, strict=True):
            their_end.close()
            with suppress(BrokenPipeError):  # it died at once; `ready` finds out and shows the log
                ours.send(arguments)
            self.roles.append(RoleProcess(name, ours, log))

    def release(self) -> None:
        for role in self.roles:
            role.release()

    def join(self) -> None:
        """All of it has ended when this returns: killed, if it did not end by itself."""
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it forked dies with it
            self._process.wait()


class RoleProcesses:
    """The processes of one bench; all of them have ended when this context closes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: list[RoleGroup] = []

    def start(self, name: str, role: str, **arguments: Any) -> RoleProcess:
        """One process for the role `module:Class`, built with `arguments`."""
        return self._start([name], role, arguments)[0]

    def start_many(self, name: str, count: int, role: str, **arguments: Any) -> list[RoleProcess]:
        """As `start`, so many times, in little more than the time of one."""
        return self._start([f"{name}-{number}" for number in range(1, count + 1)], role, arguments)

    def _start(self, names: list[str], role: str, arguments: dict[str, Any]) -> list[RoleProcess]:
        group = RoleGroup(names, role, self._folder / f"{names[0]}.log.txt", arguments)
        self._groups.append(group)
        return group.roles

    def end(self, process: RoleProcess) -> None:
        """Ends the program that a process belongs to."""
        group = next(group for group in self._groups if process in group.roles)
        self._groups.remove(group)
        group.release()
        group.join()

    def __enter__(self) -> RoleProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for group in reversed(self._groups):
            group.release()
        while self._groups:
            self._groups.pop().join()


def ask_all(processes: Sequence[RoleProcess], method: str, **arguments: Any) -> list[Any]:
    """The same call to all of them, at once; their answers in order."""
    for process in processes:
        process.ask(method, **arguments)
    return [process.answer() for process in processes]
