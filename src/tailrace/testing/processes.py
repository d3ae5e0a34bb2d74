"""Roles of Tailrace as real processes, to be started, stopped, killed and always reaped.

A `LocalProcess` is one command with its output in a log file. It is ready when its ready line appears on its output, or
when its `/readyz` answers. Faults go to its own pid. Where the system has `setpriv`, the kernel kills the child when
the thread that started it dies, so not even a killed test leaves processes behind. (Start processes from a thread that
lives as long as they should: usually the main thread.)
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

READY_TIMEOUT_S: Final = 30.0
END_TIMEOUT_S: Final = 10.0
READY_LINE: Final = "ready"
LOG_TAIL_BYTES: Final = 4000
_LOOK_S: Final = 0.02

_dies_with_parent: Final = [found, "--pdeathsig", "KILL", "--"] if (found := shutil.which("setpriv")) else []


class ProcessFailed(Exception):
    """A process ended, or did not get ready, when it should have; with the end of its log."""

    def __init__(self, name: str, reason: str, log: Path) -> None:
        self.name, self.reason, self.log = name, reason, log
        super().__init__(f"{name}: {reason}; its log {log} ends with:\n{log_tail(log)}")


def log_tail(log: Path, limit_bytes: int = LOG_TAIL_BYTES) -> str:
    if not log.exists():
        return "(there is no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit_bytes))
        return file.read().decode(errors="replace")


class LocalProcess:
    """A command that can be started again and again, with the same arguments, ports and folder."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        ready_url: str | None = None,
        ready_line: str | None = READY_LINE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.starts = 0
        self._ready_url = ready_url
        self._ready_line = ready_line if ready_url is None else None
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._copier: threading.Thread | None = None
        self._ready = threading.Event()
        self._stopped = False

    def __enter__(self) -> LocalProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        return self._stopped and self.running

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        assert not self.running, f"{self.name} runs already"
        self._reap()
        self._ready.clear()
        self._stopped = False
        self.starts += 1
        self._process = subprocess.Popen(
            [*_dies_with_parent, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
        )
        self._copier = threading.Thread(
            target=self._copy, args=(self._process,), name=f"log of {self.name}", daemon=True
        )
        self._copier.start()

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        """Writes the output to the log, and notices the ready line. Ends with the process's output."""
        wanted = None if self._ready_line is None else self._ready_line.encode()
        assert process.stdout is not None
        with self.log.open("ab", buffering=0) as log:
            for line in process.stdout:
                log.write(line)
                if wanted is not None and line.startswith(wanted):
                    self._ready.set()

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Returns once the process serves; `ProcessFailed` if it ends or takes too long."""
        for _ in range(max(1, int(timeout_s / _LOOK_S))):
            if self._is_ready():
                return
            if not self.running:
                raise ProcessFailed(self.name, f"ended with code {self.exit_code} before it was ready", self.log)
            self._ready.wait(_LOOK_S)
        raise ProcessFailed(self.name, f"not ready after {timeout_s:g} s", self.log)

    def _is_ready(self) -> bool:
        if self._ready_url is None:
            return self._ready.is_set() or self._ready_line is None
        try:
            with urllib.request.urlopen(self._ready_url, timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False  # not there yet, or not ready yet

    # ---- faults

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        self._signal(signal.SIGKILL)
        self._reap()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its ports and connections and does nothing."""
        if self.running:
            os.kill(self.pid, signal.SIGSTOP)
            self._stopped = True
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        if self._stopped:
            self._stopped = False
            self._signal(signal.SIGCONT)
            os.waitid(os.P_PID, self.pid, os.WCONTINUED | os.WEXITED | os.WNOWAIT)

    def terminate(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """SIGTERM, and its exit code once it has drained; killed, with an error, if that takes too long."""
        self.resume()
        self._signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(self.name, f"had not ended after {timeout_s:g} s and was killed", self.log) from None
        self._reap()
        return code

    def close(self) -> None:
        """However it stands: it is gone and reaped afterwards."""
        if self.running:
            self.kill()
        self._reap()

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            os.kill(self.pid, number)

    def _reap(self) -> None:
        if self._process is None:
            return
        self._process.wait(END_TIMEOUT_S)
        if self._copier is not None:
            self._copier.join(END_TIMEOUT_S)
            self._copier = None
        if self._process.stdout is not None:
            self._process.stdout.close()


def tailrace_role(
    name: str, arguments: Sequence[str], folder: Path, *, ready_url: str | None = None, ready_line: str = READY_LINE
) -> LocalProcess:
    """`tailrace ARGUMENTS` by this interpreter, logging into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "tailrace.cli", *arguments]
    return LocalProcess(name, argv, folder / f"{name}.log", ready_url=ready_url, ready_line=ready_line)
