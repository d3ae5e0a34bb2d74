"""A subscription: sessions one after another, until the user closes it or an error says to stop.

One thread connects, reads and calls the application. When a session ends in a way that may mend itself, it comes back
after a jittered, growing pause, trying in turn all publishers that it has learnt of; an error that is the user's to
mend, or after which going on would lose something, ends the subscription and shows in `wait` and `failed`.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

from tailrace.errors import (
    AcknowledgementRefused,
    ApplicationFailed,
    ConfigInvalid,
    Disconnected,
    Fenced,
    Kind,
    RemoteFailed,
    TailraceError,
    VersionTooNew,
)
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.subscriber.application import Application, Token, require_callback
from tailrace.subscriber.delivery import Delivery, shown
from tailrace.subscriber.lease import Lease
from tailrace.subscriber.policy import ErrorPolicy
from tailrace.subscriber.session import Session
from tailrace.updates.position import LinePosition, Position
from tailrace.wire import messages
from tailrace.wire.addresses import Endpoint
from tailrace.wire.client import Connection
from tailrace.wire.tls import TLS

logger: Final = logging.getLogger(__name__)

RECONNECT: Final = Backoff(first_s=0.05, limit_s=5.0)
CLOSE_TIMEOUT_S: Final = 10.0
HELLO_TIMEOUT_S: Final = 5.0

State = Literal["connecting", "standby", "live", "closed", "failed"]


class Closing(Exception):
    """The user closes the subscription: nothing more is to be delivered."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is subscribed to, and how."""

    endpoint: Endpoint
    application: str
    subscriber: str
    filter: str | None = None
    mode: messages.Mode = "reliable"
    start: str = "latest"
    credential: str | None = None
    tls: TLS | None = None

    def ticket(self) -> messages.Subscribe:
        return messages.Subscribe(
            dataset=self.endpoint.dataset,
            application=self.application,
            subscriber=self.subscriber,
            filter=self.filter,
            mode=self.mode,
            start=self.start,
        )

    def connect(self, endpoint: Endpoint) -> Connection:
        return Connection(endpoint, self.credential, self.tls)


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription at one moment. `updates` counts repeats after a reconnect as well."""

    state: State
    address: str
    session: str
    epoch: int
    shards: tuple[int, ...]
    line: str
    progress: Position | None
    updates: int
    sessions: int
    last_error: str


@dataclass(slots=True)
class _Facts:
    """What `status` shows; written by the subscription's thread alone."""

    state: State = "connecting"
    address: str = ""
    session: str = ""
    epoch: int = 0
    shards: set[int] = field(default_factory=set)
    line: str = ""
    progress: Position | None = None
    updates: int = 0
    sessions: int = 0
    last_error: str = ""


class Subscription:
    """Runs from construction until `close`; made by `tailrace.subscribe`."""

    def __init__(
        self,
        wanted: Wanted,
        application: Application,
        policy: ErrorPolicy,
        *,
        clock: Clock = SYSTEM_CLOCK,
        reconnect: Backoff = RECONNECT,
        random: Random | None = None,
    ) -> None:
        require_callback(application)
        self._wanted = wanted
        self._application = application
        self._policy = policy
        self._clock = clock
        self._random = random or Random()
        self._retry = Retry(reconnect, self._random)
        self._endpoints = [wanted.endpoint]
        self._facts = _Facts()
        self._session: Session | None = None
        self._opening: Connection | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._deferring = False
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"tailrace-{wanted.application}", daemon=True)
        atexit.register(self.close)
        self._thread.start()

    # ---- for its user -----------------------------------------------------------------------------------------------

    @property
    def failed(self) -> BaseException | None:
        """Why the subscription ended by itself; None while it runs and after a plain `close`."""
        return self._failed

    @property
    def status(self) -> SubscriptionStatus:
        facts = self._facts
        return SubscriptionStatus(
            state=facts.state,
            address=facts.address,
            session=facts.session,
            epoch=facts.epoch,
            shards=tuple(sorted(facts.shards.copy())),
            line=facts.line,
            progress=facts.progress,
            updates=facts.updates,
            sessions=facts.sessions,
            last_error=facts.last_error,
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the subscription has ended; raises why if it failed, returns False if `timeout_s` passed first."""
        if not self._ended.wait(timeout_s):
            return False
        if self._failed is not None:
            raise self._failed
        return True

    def acknowledge(self, token: Token) -> None:
        """Acknowledges a token that `on_token` deferred. Returns once the markers are safe on the publisher's disk."""
        self._current().acknowledge(token)

    def acknowledge_through(self, position: Position) -> None:
        """Acknowledges everything up to a position of the application's own choice, without a token."""
        self._current().acknowledge_through(position)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Lets a running callback finish, acknowledges what was processed, and leaves. Does not raise `failed`."""
        self._closing.set()
        with self._lock:
            session, opening = self._session, self._opening
        if session is not None:
            session.lease.end(Closing())
            session.cancel()
        elif opening is not None:
            opening.abort()
        atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.warning("the application %s did not return within %g s", self._wanted.application, timeout_s)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self) -> Session:
        session = self._session
        if session is None:
            raise AcknowledgementRefused(token="the token", reason="there is no connection to a publisher now")
        return session

    # ---- sessions, one after another --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._facts.state = "connecting"
                try:
                    self._one_session(self._endpoints[self._retry.attempts % len(self._endpoints)])
                except TailraceError as error:
                    self._come_back_or_raise(error)
        except Closing:
            self._facts.state = "closed"
        except BaseException as error:
            self._fail(error)
        else:
            self._facts.state = "closed"
        finally:
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        self._failed = error
        self._facts.last_error = str(error)
        self._facts.state = "failed"
        if not isinstance(error, TailraceError):
            logger.error("subscription of %s failed", self._wanted.application, exc_info=error)

    def _come_back_or_raise(self, error: TailraceError) -> None:
        if self._closing.is_set():
            raise Closing from error
        if not comes_back(error):
            raise error
        self._facts.last_error = str(error)
        pause_s = self._retry.failed()
        logger.info("%s comes back in %.2f s: %s", self._wanted.application, pause_s, error)
        self._clock.wait(self._closing, pause_s)

    def _one_session(self, endpoint: Endpoint) -> None:
        with self._wanted.connect(endpoint) as control, self._wanted.connect(endpoint) as data:
            self._learn_peers(endpoint, control)
            lease = Lease(self._clock, self._clock.monotonic())
            self._opened_by(data)
            with data.get(self._wanted.ticket()) as reader:
                session = Session(
                    control=control,
                    reader=reader,
                    lease=lease,
                    clock=self._clock,
                    application=self._application,
                    progress=self,
                    delivery=self._delivery,
                )
                self._began(session, endpoint)
                try:
                    session.run()
                finally:
                    self._left(session)

    def _learn_peers(self, endpoint: Endpoint, control: Connection) -> None:
        """All publishers of the dataset, the user's own address always among them."""
        reply = control.call(messages.Hello(), messages.decode_reply, HELLO_TIMEOUT_S)
        if not isinstance(reply, messages.HelloReply):
            raise RemoteFailed(reason=f"{endpoint.address} answered Hello with {type(reply).__name__}")
        if reply.oldest_version > messages.PROTOCOL_VERSION:
            raise VersionTooNew(
                what=f"the protocol of {endpoint.address}",
                found=reply.oldest_version,
                known=messages.PROTOCOL_VERSION,
            )
        known = {each.address for each in self._endpoints}
        for peer in reply.peers:
            if peer not in known:
                self._endpoints.append(self._wanted.endpoint.at(peer))

    def _opened_by(self, data: Connection) -> None:
        with self._lock:
            self._opening = data
        if self._closing.is_set():
            raise Closing

    def _began(self, session: Session, endpoint: Endpoint) -> None:
        with self._lock:
            self._session, self._opening = session, None
        self._deferring = False
        self._facts.address = endpoint.address
        if self._closing.is_set():
            session.lease.end(Closing())
            raise Closing

    def _left(self, session: Session) -> None:
        """Says farewell where that still means something; a farewell that fails costs some repeats, no more."""
        with self._lock:
            self._session = None
        if not self._closing.is_set() and not self._ending_for_good():
            return
        try:
            session.farewell(acknowledge=not self._deferring and self._wanted.mode == "reliable")
        except TailraceError as error:
            logger.info("%s left without farewell: %s", self._wanted.application, error)

    def _ending_for_good(self) -> bool:
        import sys

        error = sys.exc_info()[1]
        return not (isinstance(error, TailraceError) and comes_back(error))

    def _delivery(self, lease: Lease) -> Delivery:
        name = self._wanted.application

        def pause(attempts: int) -> None:
            delay_s = self._policy.backoff.delay_s(attempts - 1, self._random)
            self._clock.wait(self._closing, delay_s)
            lease.check()

        return Delivery(self._application, name, self._policy, lease, self._clock, pause)
