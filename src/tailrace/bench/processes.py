"""Roles of a bench as processes of their own, commanded over a pipe.

A role is a class; its process builds it and then answers one call after the other. `ask` sends a call, `answer` waits
for what came of it: asking all before awaiting any is how many processes start together. A role's process dies with the
bench (`runtime/orphan.py`), and ends by itself when its pipe closes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tailrace.errors import ProcessFailed
from tailrace.runtime import orphan

START_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 300.0
END_TIMEOUT_S: Final = 20.0


class RoleProcess:
    """One role, addressed as `module:Class`, built with `arguments` in a process of its own."""

    def __init__(self, name: str, role: str, log: Path, **arguments: Any) -> None:
        self.name = name
        self._log = log
        self._pipe: Connection[Any, Any]
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-m", "tailrace.bench.role", role, str(theirs.fileno())]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", orphan.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
        theirs.close()
        self._pipe.send(arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> None:
        """Returns once the role is built."""
        self.answer(START_TIMEOUT_S)

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
            self._ended()
            raise self._failed(value)
        return value

    def call(self, method: str, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any) -> Any:
        self.ask(method, **arguments)
        return self.answer(timeout_s)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        """Lets the role end in its own way; kills it if it does not. Never raises for that."""
        self._pipe.close()
        self._process.send_signal(signal.SIGCONT)
        self._ended()

    def _ended(self) -> None:
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _failed(self, reason: str) -> ProcessFailed:
        written = self._log.read_text(errors="replace")[-2000:]
        return ProcessFailed(name=self.name, reason=f"{reason}\n{written}".rstrip())


class RoleProcesses:
    """The processes of one bench; all of them have ended when this context closes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[RoleProcess] = []

    def start(self, name: str, role: str, **arguments: Any) -> RoleProcess:
        process = RoleProcess(name, role, self._folder / f"{name}.log.txt", **arguments)
        self._started.append(process)
        return process

    def end(self, process: RoleProcess) -> None:
        self._started.remove(process)
        process.close()

    def __enter__(self) -> RoleProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._started:
            self._started.pop().close()


def ask_all(processes: Sequence[RoleProcess], method: str, **arguments: Any) -> list[Any]:
    """The same call to all of them, at once; their answers in order."""
    for process in processes:
        process.ask(method, **arguments)
    return [process.answer() for process in processes]
