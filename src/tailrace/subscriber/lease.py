"""How long a subscriber may go on without being heard by its publisher.

The publisher gives the flows to another subscriber once this one has been silent for longer than the lease. So the
library counts the lease from the moment that it *sent* the last sign of life which was answered, on a clock that goes
on while the machine is suspended, and calls the application no more once it is over. `end` takes the lease away at
once, with the reason: the publisher refused the session, or the user closes the subscription.
"""

from __future__ import annotations

import math
import threading

from tailrace.errors import Fenced
from tailrace.runtime.clock import Clock


class Lease:
    """One session's lease. `until` is read on the hot path; everything else goes through the methods."""

    def __init__(self, clock: Clock, sent_at: float) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard_at = sent_at
        self._ended: BaseException | None = None
        self.lease_s = math.inf
        self.until = math.inf  # until `Opened` says how long it is

    def opened(self, lease_s: float) -> None:
        with self._lock:
            self.lease_s = lease_s
            self._update()

    def renew(self, sent_at: float) -> None:
        """A sign of life that was sent at `sent_at` has been answered. Too late once the lease is over: it stays so."""
        with self._lock:
            if self.over:
                return
            self._heard_at = max(self._heard_at, sent_at)
            self._update()

    def end(self, reason: BaseException) -> None:
        """The first reason stays."""
        with self._lock:
            self._ended = self._ended or reason
            self.until = -math.inf

    @property
    def over(self) -> bool:
        return self._clock.monotonic() > self.until

    @property
    def lapsed(self) -> bool:
        """Whether its time has run out, apart from whether it was taken away."""
        return self._clock.monotonic() > self._heard_at + self.lease_s

    def check(self) -> None:
        """Raises why the application may not be called any more; to be asked right before each call."""
        if self._clock.monotonic() > self.until:
            raise self.reason()

    def reason(self) -> BaseException:
        return self._ended or Fenced(
            what="this subscriber's session",
            reason=f"its publisher was not reached for longer than the lease of {self.lease_s:g} s",
        )

    def _update(self) -> None:
        if self._ended is None:
            self.until = self._heard_at + self.lease_s
