"""The thread that keeps a session's lease and reports progress, beside the thread that reads and calls the application.

It sends `Alive` at least four times a lease, and sooner when the application got further: within 50 ms once it has
caught up, every 250 ms while it is busy, so that progress costs next to nothing under load. It also notices what the
reader cannot while it waits: a lease that is over, a session that the publisher refuses, a stream on which not even
heartbeats come. Then it cancels the stream, and the reader finds out why from the lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from tailrace.errors import Disconnected, Kind, TailraceError
from tailrace.runtime.clock import Clock
from tailrace.subscriber.lease import Lease
from tailrace.updates.position import Position

logger: Final = logging.getLogger(__name__)

SIGNS_PER_LEASE: Final = 4
CAUGHT_UP_S: Final = 0.05
BUSY_S: Final = 0.25
LONGEST_WAIT_S: Final = 1.0  # a lease may be unknown yet, and silence is looked for even in a long one
OPENS_WITHIN_S: Final = 10.0  # how long silence may last while the lease is unknown


class Pulse:
    """`send` tells the publisher; `cancel` ends the stream from here. Both are the session's."""

    def __init__(
        self,
        lease: Lease,
        clock: Clock,
        send: Callable[[Position | None, float], None],
        cancel: Callable[[], None],
    ) -> None:
        self._lease = lease
        self._clock = clock
        self._send = send
        self._cancel = cancel
        self._moved = threading.Event()
        self._stopped = threading.Event()
        self._progress: Position | None = None
        self._opened = False
        self._last_sent_at = clock.monotonic()
        self.waiting_since: float | None = None  # set by the reader while it waits for the next message
        self._thread = threading.Thread(target=self._beat, name="tailrace-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._moved.set()
        self._thread.join()

    def opened(self) -> None:
        """The session is known: signs of life can be sent."""
        self._opened = True
        self._moved.set()

    def moved(self, progress: Position) -> None:
        """The application has processed everything up to there."""
        if progress != self._progress:
            self._progress = progress
            if not self._moved.is_set():
                self._moved.set()

    def _beat(self) -> None:
        while not self._stopped.is_set():
            self._clock.wait(self._moved, self._patience_s())
            if self._stopped.is_set():
                return
            moved = self._moved.is_set()
            self._moved.clear()
            if self._lease.over or self._silent():
                self._cancel()
                return
            due = self._clock.monotonic() - self._last_sent_at >= self._interval_s()
            if self._opened and (moved or due) and not self._tell():
                return
            self._space_out()

    def _patience_s(self) -> float:
        since = self._clock.monotonic() - self._last_sent_at
        return min(LONGEST_WAIT_S, max(0.0, self._interval_s() - since))

    def _interval_s(self) -> float:
        return self._lease.lease_s / SIGNS_PER_LEASE

    def _silent(self) -> bool:
        """The reader has waited for so long that not even a heartbeat can be on its way."""
        since = self.waiting_since
        limit_s = self._lease.lease_s if self._opened else OPENS_WITHIN_S
        if since is None or self._clock.monotonic() - since <= limit_s:
            return False
        self._lease.end(Disconnected(address="the publisher", reason=f"silent for {limit_s:g} s"))
        return True

    def _tell(self) -> bool:
        """Sends a sign of life; False if the session is over."""
        sent_at = self._clock.monotonic()
        self._last_sent_at = sent_at
        try:
            self._send(self._progress, min(5.0, self._lease.lease_s / 2))
        except TailraceError as error:
            if error.kind is Kind.RETRY:
                logger.debug("a sign of life was not answered: %s", error)
                return True
            self._lease.end(error)
            self._cancel()
            return False
        self._lease.renew(sent_at)
        return True

    def _space_out(self) -> None:
        """Progress that comes meanwhile is told with the next sign."""
        self._clock.wait(self._stopped, CAUGHT_UP_S)
        waited_s = CAUGHT_UP_S
        while self.waiting_since is None and waited_s < BUSY_S and not self._stopped.is_set():
            self._clock.wait(self._stopped, CAUGHT_UP_S)
            waited_s += CAUGHT_UP_S
