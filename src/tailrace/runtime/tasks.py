"""A role's threads: started together, stopped together, and never dying unseen.

`Workers` hands every thread the same stop event. When a thread raises, the failure is logged and kept, the others are
asked to stop, the role is no longer ready, and `join` raises what happened. Threads are daemons: a thread that is stuck
in a call cannot keep a process alive that has reported it.

A Python signal handler runs between two bytecodes of the main thread, which may at that moment hold the lock of the
very event that the handler wants to set, or be about to block for good, with the signal already behind it. So
`drain_on_signals` has the interpreter write each signal into a pipe as it arrives; a thread reads it and sets the
event.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread, current_thread
from typing import Any, Final

from tailrace.errors import WorkersStuck
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from tailrace.runtime.logging import get_log

log = get_log(__name__)

JOIN_TIMEOUT_S: Final = 10.0


class Workers:
    def __init__(self, name: str, *, stop: Event | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.name = name
        self.stop = stop or Event()
        self._clock = clock
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._failures: list[tuple[str, BaseException]] = []

    def start(self, name: str, work: Callable[..., object], *arguments: Any) -> Thread:
        """Runs `work(*arguments)` in a thread. It ends by returning, soon after `self.stop` is set."""
        thread = Thread(target=self._run, args=(name, work, arguments), name=f"{self.name}/{name}", daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive() or one.ident is None]
            self._threads.append(thread)
        thread.start()
        return thread

    def not_ready(self) -> list[str]:
        """A readiness check: the failures so far."""
        with self._lock:
            return [f"{name} failed: {type(error).__name__}: {error}" for name, error in self._failures]

    @property
    def failure(self) -> BaseException | None:
        """What the first thread that failed raised."""
        with self._lock:
            return self._failures[0][1] if self._failures else None

    def join(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Waits for all threads (set `stop` first); raises the first failure, or `WorkersStuck` at the deadline."""
        deadline = Deadline(timeout_s, self._clock)
        with self._lock:
            threads = [one for one in self._threads if one is not current_thread()]
        for thread in threads:
            thread.join(deadline.left_s())
        failure = self.failure
        if failure is not None:
            raise failure
        stuck = [thread.name for thread in threads if thread.is_alive()]
        if stuck:
            raise WorkersStuck(threads=", ".join(stuck), timeout_s=timeout_s)

    def close(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Stops and joins."""
        self.stop.set()
        self.join(timeout_s)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self.stop.set()
        try:
            self.join()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"while stopping {self.name}: {type(failure).__name__}: {failure}")

    def _run(self, name: str, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised where the group is joined
            log.error("thread failed", thread=f"{self.name}/{name}", exception=error)
            with self._lock:
                self._failures.append((name, error))
            self.stop.set()


@contextmanager
def drain_on_signals(
    stop: Event, signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """While it is open, the first of `signals` sets `stop`; a second one interrupts. For a command's main thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    came = 0

    def note(_number: int, _frame: object) -> None:
        nonlocal came
        came += 1
        if came > 1:
            raise KeyboardInterrupt

    def watch() -> None:
        while received := os.read(reading, 1):
            if received[0] in signals:
                log.info("draining", signal=signal.Signals(received[0]).name)
                stop.set()

    watcher = Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    previous_pipe = signal.set_wakeup_fd(writing)
    previous = {one: signal.signal(one, note) for one in signals}
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_pipe)
        for one, handler in previous.items():
            signal.signal(one, handler)
        os.close(writing)
        watcher.join()
        os.close(reading)
