"""Time and waiting as a parameter.

Whoever needs the time or waits is given a `Clock`, so that tests drive time by hand and simulations have seeds.
Intervals, deadlines and leases use `monotonic`; `wall` is only for what a person reads or a datastore stamped. The
system's monotonic clock is CLOCK_BOOTTIME where there is one: it counts on while the machine is suspended, as the
leases that others hold of us do, and it is the same for every process of one machine.
"""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol

_MONOTONIC_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since some moment; never falls, and jumps of the wall clock do not touch it."""

    def wall(self) -> float:
        """Seconds since 1970 UTC; may jump either way."""

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        """Blocks until `event` is set or `timeout_s` has passed on this clock; returns whether it is set."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC_ID)

    def wall(self) -> float:
        return time.time()

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        return event.wait(timeout_s)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """A moment on a clock's monotonic time; what several steps share that must be done by then."""

    def __init__(self, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._at = clock.monotonic() + timeout_s

    def left_s(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    def passed(self) -> bool:
        return self._clock.monotonic() >= self._at
