"""A subscription: sessions one after another, until the user closes it or an error says to stop.

One thread connects, reads and calls the application. When a session ends in a way that may mend itself, it comes back
after a jittered, growing pause, trying in turn all publishers that it has learnt of; an error that is the user's to
mend, or after which going on would lose something, ends the subscription and shows in `wait` and `failed`.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from tailrace.errors import (
    AcknowledgementRefused,
    ApplicationFailed,
    ConfigInvalid,
    Fenced,
    Kind,
    RemoteFailed,
    TailraceError,
    UrlInvalid,
    VersionTooNew,
)
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.subscriber.application import Application, Token, require_callback
from tailrace.subscriber.delivery import Delivery
from tailrace.subscriber.lease import Lease
from tailrace.subscriber.ledger import Ledger, SubscriptionStatus
from tailrace.subscriber.policy import ErrorPolicy, PolicyName
from tailrace.subscriber.seen import warm
from tailrace.subscriber.session import Session
from tailrace.subscriber.wanted import Wanted, wanted
from tailrace.updates.filters import Filter
from tailrace.updates.position import LinePosition, Position
from tailrace.wire.addresses import Endpoint
from tailrace.wire.client import Connection
from tailrace.wire.messages import PROTOCOL_VERSION, Hello, HelloReply, Mode, decode_reply
from tailrace.wire.tls import TLS

logger: Final = logging.getLogger(__name__)

RECONNECT: Final = Backoff(first_s=0.05, limit_s=5.0)
HELLO_TIMEOUT_S: Final = 5.0
MAX_PEERS: Final = 64
CLOSE_TIMEOUT_S: Final = 10.0
STEADY_S: Final = 1.0  # a session that lasted so long was a success: the next pause is short again
QUIET_FAILURES: Final = 5  # in a row, about a second: a publisher that restarts is none of the user's concern
PATIENT_CLOSE_S: Final = 1.0  # for a connection that is just being opened, before its sockets are closed


class Closing(Exception):
    """The user closes the subscription: nothing more is to be delivered."""


class Subscription:
    """Runs from construction until `close`; `tailrace.subscribe` makes one."""

    def __init__(
        self,
        wanted: Wanted,
        application: Application,
        policy: ErrorPolicy,
        *,
        clock: Clock = SYSTEM_CLOCK,
        reconnect: Backoff = RECONNECT,
        random: Random | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        require_callback(application)
        self._wanted = wanted
        self._application = application
        self._policy = policy
        self._clock = clock
        self._random = random or Random()
        self._retry = Retry(reconnect, self._random)
        self._endpoints = [wanted.endpoint]
        self._next = wanted.endpoint
        self._ledger = Ledger(clock)
        self._session: Session | None = None
        self._connecting: Connection | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._on_end = on_end
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
        return self._ledger.status()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the subscription has ended; raises why if it failed, returns False if `timeout_s` passed first."""
        if not self._ended.wait(timeout_s):
            return False
        if self._failed is not None:
            raise self._failed
        return True

    def acknowledge(self, token: Token) -> None:
        """Acknowledges a token that `on_token` deferred. Returns once the markers are safe on the publisher's disk."""
        self._current(f"token {token.number}").acknowledge(token)

    def acknowledge_through(self, position: Position) -> None:
        """Acknowledges everything up to a position of the application's own choice, without a token."""
        self._current(f"position {position}").acknowledge_through(position)

    def stop(self) -> None:
        """Asks for the end without waiting for it; safe to call from a callback."""
        self._closing.set()
        with self._lock:
            session = self._session
        if session is not None:
            session.end(Closing())

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Lets a running callback finish, acknowledges what was processed, and leaves. Does not raise `failed`."""
        self.stop()
        if threading.current_thread() is self._thread:
            return
        self._thread.join(min(timeout_s, PATIENT_CLOSE_S))
        with self._lock:
            connecting = self._connecting
        if self._thread.is_alive() and connecting is not None:
            connecting.abort()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning("application %s did not return within %g s", self._wanted.application, timeout_s)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self, what: str) -> Session:
        session = self._session
        if session is None:
            raise AcknowledgementRefused(token=what, reason="there is no connection to a publisher now")
        return session

    # ---- sessions, one after another --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            warm()
            while not self._closing.is_set():
                self._ledger.state = "connecting"
                try:
                    self._one_session(self._next)
                except TailraceError as error:
                    self._come_back_or_raise(error)
            self._ledger.state = "closed"
        except Closing:
            self._ledger.state = "closed"
        except BaseException as error:  # noqa: BLE001 - a thread's last resort: `wait` raises it for the user
            self._fail(error)
        finally:
            atexit.unregister(self.close)
            self._ended.set()
            self._on_end()

    def _fail(self, error: BaseException) -> None:
        self._failed = error
        self._ledger.last_error = str(error)
        self._ledger.state = "failed"
        logger.error("the subscription of %s ends: %s", self._wanted.application, error, exc_info=_unforeseen(error))

    def _come_back_or_raise(self, error: TailraceError) -> None:
        if self._closing.is_set():
            raise Closing from error
        if not comes_back(error):
            raise error
        self._ledger.last_error = str(error)
        pause_s = self._retry.failed()
        level = logging.INFO if self._retry.attempts < QUIET_FAILURES else logging.WARNING
        logger.log(level, "application %s comes back in %.2f s: %s", self._wanted.application, pause_s, error)
        self._clock.wait(self._closing, pause_s)

    def _one_session(self, endpoint: Endpoint) -> None:
        """Always raises why it ended. The next attempt goes to another publisher unless this one was of use."""
        self._next = self._after(endpoint)
        with self._wanted.connect(endpoint) as control, self._wanted.connect(endpoint) as data:
            self._learn_peers(endpoint, control)
            self._next = self._after(endpoint)
            lease = Lease(self._clock, self._clock.monotonic())
            self._is_connecting(data)
            try:
                reader = data.get(self._wanted.ticket())
            finally:
                self._is_connecting(None)
            session = Session(
                control=control,
                reader=reader,
                lease=lease,
                clock=self._clock,
                application=self._application,
                ledger=self._ledger,
                delivery=self._delivery(lease),
            )
            with reader:
                self._ledger.address = endpoint.address
                self._run_session(session, endpoint)

    def _run_session(self, session: Session, endpoint: Endpoint) -> None:
        with self._lock:
            self._session = session
        if self._closing.is_set():
            session.end(Closing())
        ending: BaseException | None = None
        started = self._clock.monotonic()
        try:
            session.run()
        except BaseException as error:
            ending = error
            raise
        finally:
            with self._lock:
                self._session = None
            if session.settled:
                self._next = endpoint
                if self._clock.monotonic() - started >= STEADY_S:
                    self._retry.succeeded()
            closing = self._closing.is_set()
            if closing or not (isinstance(ending, TailraceError) and comes_back(ending)):
                self._farewell(session, last_token=closing)

    def _farewell(self, session: Session, *, last_token: bool) -> None:
        """One that fails costs some repeats and a lease's wait, no more."""
        try:
            session.farewell(last_token=last_token and self._wanted.mode == "reliable")
        except Exception:  # the application's own on_token is in there
            logger.warning("application %s left without a farewell", self._wanted.application, exc_info=True)

    def _learn_peers(self, endpoint: Endpoint, control: Connection) -> None:
        """All publishers of the dataset, the user's own address always among them."""
        reply = control.call(Hello(), decode_reply, HELLO_TIMEOUT_S)
        if not isinstance(reply, HelloReply):
            raise RemoteFailed(reason=f"{endpoint.address} answered Hello with {type(reply).__name__}")
        if reply.oldest_version > PROTOCOL_VERSION:
            raise VersionTooNew(
                what=f"the protocol of {endpoint.address}", found=reply.oldest_version, known=PROTOCOL_VERSION
            )
        peers = {self._wanted.endpoint.address: self._wanted.endpoint}
        for address in reply.peers[:MAX_PEERS]:
            try:
                peer = self._wanted.endpoint.at(address)
                self._wanted.connect(peer).close()  # no network yet: it refuses to send a credential in the clear
            except (UrlInvalid, ConfigInvalid) as error:
                logger.warning("a peer of %s is passed over: %s", endpoint.address, error)
            else:
                peers.setdefault(peer.address, peer)
        self._endpoints = list(peers.values())

    def _after(self, endpoint: Endpoint) -> Endpoint:
        """The publisher to try when this one is of no use."""
        known = self._endpoints
        return known[(known.index(endpoint) + 1) % len(known)] if endpoint in known else known[0]

    def _is_connecting(self, data: Connection | None) -> None:
        with self._lock:
            self._connecting = data
        if self._closing.is_set():
            raise Closing

    def _delivery(self, lease: Lease) -> Delivery:
        def pause(attempts: int, failed: ApplicationFailed) -> None:
            self._ledger.last_error = f"attempt {attempts}: {failed}"
            self._clock.wait(self._closing, self._policy.backoff.delay_s(attempts - 1, self._random))
            lease.check()

        return Delivery(self._application, self._wanted.application, self._policy, lease, self._clock, pause)


def subscribe(
    url: str,
    application_object: Application,
    *,
    application: str,
    filter: str | Filter | None = None,
    mode: Mode = "reliable",
    start: str | LinePosition = "latest",
    credential: str | None = None,
    credential_file: str | Path | None = None,
    tls: TLS | None = None,
    error_policy: PolicyName | ErrorPolicy = "stop",
    subscriber: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
    reconnect: Backoff = RECONNECT,
    on_end: Callable[[], None] = lambda: None,
) -> Subscription:
    """Hands the updates of `tailrace://host:port/dataset` to `application_object`, in a thread of its own.

    `application` names the consumer whose place in the log is kept; `start` is where a new one begins ('earliest',
    'latest' or a line@position). What is wrong with the arguments is raised here, everything later by `wait`.
    `on_end` is called as the last thing in that thread, however the subscription ended.
    """
    asked = wanted(
        url,
        application=application,
        filter=filter,
        mode=mode,
        start=start,
        credential=credential,
        credential_file=credential_file,
        tls=tls,
        subscriber=subscriber,
    )
    return Subscription(
        asked, application_object, ErrorPolicy.named(error_policy), clock=clock, reconnect=reconnect, on_end=on_end
    )


def comes_back(error: TailraceError) -> bool:
    """Whether another session may do better. A session that is over is not the end of its subscription."""
    return error.kind is Kind.RETRY or isinstance(error, Fenced | AcknowledgementRefused)


def _unforeseen(error: BaseException) -> BaseException | None:
    return None if isinstance(error, TailraceError) else error
