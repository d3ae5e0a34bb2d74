"""A clock that stands still until a test moves it.

`wait` blocks its thread until the event is set or the test has advanced the clock past the deadline. A test that wants
a thread to be waiting before it moves the clock asks for that with `until_waiting`, so no test sleeps. An event cannot
tell the clock that it was set, so waiters look at it every 2 ms of real time; only how soon they notice depends on it.
"""

from __future__ import annotations

import time
from threading import Condition, Event

_LOOK_S = 0.002


class ManualClock:
    def __init__(self, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._moved = Condition()
        self._monotonic = monotonic
        self._wall = wall
        self._waiting = 0

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Moves both clocks on and wakes whoever's time has come."""
        assert seconds >= 0, "monotonic time never falls; use jump_wall for the wall clock"
        with self._moved:
            self._monotonic += seconds
            self._wall += seconds
            self._moved.notify_all()

    def jump_wall(self, seconds: float) -> None:
        """Someone set the machine's clock; monotonic time goes on as before."""
        self._wall += seconds

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        with self._moved:
            until = None if timeout_s is None else self._monotonic + timeout_s
            self._waiting += 1
            self._moved.notify_all()
            try:
                while not event.is_set() and (until is None or self._monotonic < until):
                    self._moved.wait(_LOOK_S)
            finally:
                self._waiting -= 1
        return event.is_set()

    def until_waiting(self, threads: int = 1, limit_s: float = 5.0) -> None:
        """Blocks until that many threads wait on this clock; fails after `limit_s` of real time."""
        give_up = time.monotonic() + limit_s
        with self._moved:
            while self._waiting < threads:
                left_s = give_up - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"{self._waiting} threads wait on the clock, expected {threads}")
                self._moved.wait(left_s)
