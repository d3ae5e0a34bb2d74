"""`tailrace demo`: everything at once, as real processes in a temporary folder, and the table of who is where.

The node starts first; the writer and the applications start once it says that it is ready. The supervisor starts again
whatever dies, so killing one of them shows what happens then. Ctrl-C, SIGTERM or the end of `--seconds` ends them all.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from threading import Event, Lock, Timer
from typing import IO, Final

from tailrace.cli.demo_parts import FILTERS
from tailrace.cli.looking import REFRESH_S, ask_status, say_lines, watch_live
from tailrace.cli.output import note, on_terminal, say
from tailrace.cli.ports import settled
from tailrace.errors import Kind, TailraceError, Unavailable
from tailrace.runtime.processes import Child, Supervisor
from tailrace.runtime.tasks import drain_on_signals
from tailrace.wire.client import Connection

READY_TIMEOUT_S: Final = 60.0
PLAIN_EVERY_S: Final = 2 * REFRESH_S
_LOOK_S: Final = 0.2


def run_demo(seconds: float | None, rate: float) -> None:
    stop = Event()
    address = settled("127.0.0.1:0")
    with tempfile.TemporaryDirectory(prefix="tailrace-demo-") as folder, _log(Path(folder)) as log:
        demo = Demo(Path(folder), address, rate, log)
        with drain_on_signals(stop):
            try:
                demo.run(stop, seconds)
            except TailraceError as error:
                error.add_note(f"what its processes said last:\n{demo.last_lines()}")
                raise
    say("the demo has ended; its data is gone")


def _log(folder: Path) -> IO[str]:
    return (folder / "demo.log").open("w+")


class Demo:
    """The processes of a demo and what they print, which goes to a file: the terminal shows the table."""

    def __init__(self, folder: Path, address: str, rate: float, log: IO[str]) -> None:
        self._folder = folder
        self._address = address
        self._rate = rate
        self._log = log
        self._lock = Lock()
        self._ready = Event()

    def run(self, stop: Event, seconds: float | None) -> None:
        note(f"starting the store and its publisher on {self._address}, with data in {self._folder}")
        with Supervisor([self._node()]) as node:
            self._wait_ready(node, stop)
            with Supervisor([self._part(name) for name in ("writer", *FILTERS)]) as parts:
                self._show(stop, seconds, (node, parts))

    def last_lines(self) -> str:
        with self._lock:
            self._log.seek(0)
            return "".join(self._log.readlines()[-20:])

    def _node(self) -> Child:
        options = ["--role", "node", "--data", str(self._folder / "data"), "--listen", self._address]
        argv = [sys.executable, "-m", "tailrace.cli", "run", *options, "--health", "127.0.0.1:0"]
        return Child("node", argv, output=self._heard)

    def _part(self, name: str) -> Child:
        argv = [sys.executable, "-m", "tailrace.cli.demo_parts", name, self._address, str(self._rate)]
        return Child(name, argv, output=self._heard)

    def _heard(self, name: str, line: str) -> None:
        with self._lock:
            self._log.write(f"{name:>12} | {line}\n")
            self._log.flush()
        if name == "node" and line.startswith("ready "):
            self._ready.set()

    def _wait_ready(self, node: Supervisor, stop: Event) -> None:
        for _ in range(int(READY_TIMEOUT_S / _LOOK_S)):
            if self._ready.wait(_LOOK_S) or stop.is_set():
                return
            node.raise_failure()
        raise Unavailable(reason=f"the node was not ready after {READY_TIMEOUT_S:g} s")

    def _show(self, stop: Event, seconds: float | None, supervisors: tuple[Supervisor, ...]) -> None:
        if stop.is_set():
            return
        say(f"try in another terminal: tailrace tail demo --address {self._address}")
        with Connection(self._address) as publisher:
            _wait_subscribed(publisher, stop, supervisors)
            timer = Timer(seconds, stop.set) if seconds is not None else None
            if timer is not None:
                timer.daemon = True
                timer.start()
            if on_terminal():
                watch_live(publisher, stop, f"tailrace demo: {self._rate:g} writes/s; Ctrl-C ends it")
            else:
                _say_until(publisher, stop, supervisors)
            if timer is not None:
                timer.cancel()


def _wait_subscribed(publisher: Connection, stop: Event, supervisors: tuple[Supervisor, ...]) -> None:
    """Until every application is known to the publisher: the demo's seconds count from then on."""
    for _ in range(int(READY_TIMEOUT_S / _LOOK_S)):
        if len(ask_status(publisher).applications) == len(FILTERS) or stop.wait(_LOOK_S):
            return
        for supervisor in supervisors:
            supervisor.raise_failure()
    raise Unavailable(reason=f"the applications had not subscribed after {READY_TIMEOUT_S:g} s")


def _say_until(publisher: Connection, stop: Event, supervisors: tuple[Supervisor, ...]) -> None:
    while not stop.wait(PLAIN_EVERY_S):
        for supervisor in supervisors:
            supervisor.raise_failure()
        try:
            say_lines(ask_status(publisher).applications)
        except TailraceError as error:
            if error.kind is not Kind.RETRY:
                raise
            note(f"{error}; waiting for it")
