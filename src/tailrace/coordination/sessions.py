"""The sessions that this process has opened, and the thread that renews their leases.

A lease is renewed four times in its length. That thread only writes to lease files; ending what was lost is the
keeper's business, so that a database in trouble cannot delay a renewal.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import Final, Protocol

from tailrace.coordination.interface import LEASE_S, Claim
from tailrace.coordination.leases import LeaseFile
from tailrace.runtime.clock import Clock
from tailrace.runtime.logging import get_log

log = get_log(__name__)

RENEWALS_PER_LEASE: Final = 4


class SessionHost(Protocol):
    """What a session needs of the coordinator that opened it."""

    def join(self, session: EmbeddedSession, group: str, member_id: str, info: bytes) -> None: ...
    def leave(self, session: EmbeddedSession, group: str, member_id: str) -> bool: ...
    def claim(self, session: EmbeddedSession, name: str) -> Claim | None: ...
    def release(self, claim: Claim) -> bool: ...
    def close_session(self, session: EmbeddedSession) -> None: ...


class EmbeddedSession:
    """Implements `Session`."""

    def __init__(
        self, host: SessionHost, session_id: str, name: str, lease: LeaseFile, lease_s: float, clock: Clock
    ) -> None:
        self.id = session_id
        self.name = name
        self.lease_s = lease_s
        self.lost = Event()
        self._host = host
        self._lease = lease
        self._clock = clock
        self._lock = Lock()
        self._closed = False
        self._lease_closed = False
        self._callbacks: list[Callable[[], None]] = []

    def lease_left_s(self) -> float:
        if self._closed or self.lost.is_set():
            return 0.0
        return max(0.0, self._lease.ends_at - self._clock.monotonic())

    def on_lost(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self.lost.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def join(self, group: str, member_id: str, info: bytes = b"") -> None:
        self._host.join(self, group, member_id, info)

    def leave(self, group: str, member_id: str) -> bool:
        return self._host.leave(self, group, member_id)

    def claim(self, name: str) -> Claim | None:
        return self._host.claim(self, name)

    def release(self, claim: Claim) -> bool:
        return self._host.release(claim)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._host.close_session(self)

    def renew(self) -> None:
        """Prolongs the lease, or finds that it has ended."""
        with self._lock:
            if self._closed or self.lost.is_set():
                return
            now = self._clock.monotonic()
            try:
                still_held = self._lease.renew(now, self.lease_s)
            except OSError as error:  # tried again at the next renewal, as long as the lease lasts
                log.error("lease not renewed", session=self.id, exception=error)
                still_held = now < self._lease.ends_at
        if not still_held:
            self.lose()

    def lose(self) -> None:
        """Nothing may be done under this session any more."""
        with self._lock:
            if self._closed or self.lost.is_set():
                return
            self.lost.set()
            callbacks, self._callbacks = self._callbacks, []
        log.warning("session lost", session=self.id, name=self.name)
        for callback in callbacks:
            callback()

    def close_lease(self) -> None:
        with self._lock:
            if not self._lease_closed:
                self._lease_closed = True
                self._lease.close()


class SessionSet:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, EmbeddedSession] = {}
        self.wake = Event()  # set when there is another session to renew, or no more to do

    def add(self, session: EmbeddedSession) -> None:
        with self._lock:
            self._sessions[session.id] = session
        self.wake.set()

    def remove(self, session: EmbeddedSession) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)

    def all(self) -> list[EmbeddedSession]:
        with self._lock:
            return list(self._sessions.values())

    def keep_renewed(self, stop: Event) -> None:
        """Runs until `stop` is set."""
        try:
            while not stop.is_set():
                self._clock.wait(self.wake, self._interval_s())
                self.wake.clear()
                for session in self.all():
                    session.renew()
        finally:
            for session in self.all():
                session.lose()

    def _interval_s(self) -> float:
        return min([session.lease_s for session in self.all()], default=LEASE_S) / RENEWALS_PER_LEASE
