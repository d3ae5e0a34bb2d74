"""Reading the log of an embedded store that runs in another process of this machine: `store://host:port/dataset`.

The log itself is read from the store's folder, like that of any RocksDB. What only the store knows, how far its log is
safe, it pushes over its Flight port: `RemoteHorizon` follows that stream. While the store cannot be reached the last
value stands, so a reader delivers what was safe and waits for more.
"""

from __future__ import annotations

import logging
import os
from random import Random
from threading import Condition, Event, Thread
from typing import Final, Literal

from tailrace.errors import Kind, LogUnreadable, ProtocolMismatch, StoreFailed, TailraceError
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.sources.rocksdb import Decoder, RocksDBSource, identity
from tailrace.wire.addresses import Endpoint, parse_url
from tailrace.wire.client import Connection, StreamReader
from tailrace.wire.store_messages import (
    DescribeStore,
    FollowHorizon,
    Safe,
    StoreDescription,
    decode_store_down,
    decode_store_reply,
)
from tailrace.wire.tls import TLS

logger: Final = logging.getLogger(__name__)

SILENCE_S: Final = 5  # the store says something every second
BACKOFF: Final = Backoff(first_s=0.05, limit_s=2.0)


class RemoteHorizon:
    """A `Horizon` that follows the store at an address, from `safe_through` on, as long as its era is `era`.

    A store that comes back with another era has another history, or may have: what is safe in it says nothing about
    this one. The horizon then stands still and `superseded_by` names the new era.
    """

    def __init__(
        self,
        connection: Connection,
        dataset: str,
        *,
        era: int,
        safe_through: int,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.superseded_by: int | None = None
        self._connection = connection
        self._dataset = dataset
        self._era = era
        self._safe = safe_through
        self._clock = clock
        self._retry = Retry(BACKOFF, random)
        self._changed = Condition()
        self._closed = Event()
        self._reader: StreamReader | None = None
        self._heard = True
        self._threads = [
            Thread(target=self._run_follow, name="store-horizon", daemon=True),
            Thread(target=self._run_watch, name="store-horizon-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def safe_through(self) -> int:
        return self._safe

    def wait_beyond(self, sequence: int, timeout_s: float) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._safe > sequence or self._closed.is_set(), timeout_s)
        return self._safe

    def close(self) -> None:
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            reader = self._reader
        if reader is not None:
            reader.cancel()
        for thread in self._threads:
            thread.join()

    def _run_follow(self) -> None:
        while not self._closed.is_set():
            try:
                self._follow()
            except TailraceError as error:
                level = logging.INFO if error.kind is Kind.RETRY else logging.ERROR
                if not self._closed.is_set():
                    logger.log(level, "the horizon of %s stands at %d: %s", self._dataset, self._safe, error)
            self._clock.wait(self._closed, self._retry.failed())

    def _follow(self) -> None:
        with self._connection.get(FollowHorizon(self._dataset)) as reader:
            with self._changed:
                self._reader = reader
                if self._closed.is_set():
                    return
            for _, metadata in reader:
                self._heard = True
                message = decode_store_down(metadata)
                if isinstance(message, Safe):
                    self._retry.succeeded()
                    self._take(message)

    def _take(self, told: Safe) -> None:
        with self._changed:
            if told.era != self._era:
                if self.superseded_by != told.era:
                    logger.error("the store of %s has era %d now, not %d", self._dataset, told.era, self._era)
                self.superseded_by = told.era
            elif told.safe_through > self._safe:
                self._safe = told.safe_through
                self._changed.notify_all()

    def _run_watch(self) -> None:
        """Gives up a silent connection; a new stream on it would be silent as well.

        Counts looks rather than time, so that a process which was stopped looks again.
        """
        silent_looks = 0
        while not self._clock.wait(self._closed, 1.0):
            silent_looks = 0 if self._heard else silent_looks + 1
            self._heard = False
            reader = self._reader
            if silent_looks >= SILENCE_S and reader is not None:
                silent_looks = 0
                reader.cancel()
                self._connection.abort()


class StoreSource(RocksDBSource):
    """The log of an embedded store, together with the connection over which its horizon comes."""

    def __init__(
        self,
        description: StoreDescription,
        horizon: RemoteHorizon,
        connection: Connection,
        *,
        index_dir: str | os.PathLike[str] | None = None,
        on_gap: Literal["stop", "notice"] = "stop",
        decoder: Decoder | None = None,
    ) -> None:
        super().__init__(
            description.path,
            line=description.line,
            era=description.era,
            shards=description.shards,
            horizon=horizon,
            index_dir=index_dir,
            on_gap=on_gap,
            decoder=decoder,
        )
        self.horizon = horizon
        self._connection = connection

    def close(self) -> None:
        super().close()
        self.horizon.close()
        self._connection.close()


def open_store_source(
    url: str,
    *,
    credential: str | None = None,
    tls: TLS | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    on_gap: Literal["stop", "notice"] = "stop",
    decoder: Decoder | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> StoreSource:
    """The source behind a `store://` URL. The store must run on this machine and be reachable now."""
    endpoint = parse_url(url, scheme="store")
    connection = Connection(endpoint, credential, tls)
    try:
        described = _described(connection, endpoint)
        horizon = RemoteHorizon(
            connection, endpoint.dataset, era=described.era, safe_through=described.safe_through, clock=clock
        )
        try:
            return StoreSource(described, horizon, connection, index_dir=index_dir, on_gap=on_gap, decoder=decoder)
        except BaseException:
            horizon.close()
            raise
    except BaseException:
        connection.close()
        raise


def _described(connection: Connection, endpoint: Endpoint) -> StoreDescription:
    """What the store says of itself, if the folder that it names is really its own as seen from here."""
    reply = connection.call(DescribeStore(endpoint.dataset), decode_store_reply)
    if not isinstance(reply, StoreDescription):
        raise ProtocolMismatch(reason=f"{endpoint} answered DescribeStore with a {type(reply).__name__}")
    claim = f"{endpoint} says that this is its folder; run the publisher on the store's machine"
    try:
        found = identity(reply.path)
    except LogUnreadable as error:
        raise StoreFailed(path=reply.path, reason=f"cannot be read here ({error.reason}), though {claim}") from error
    if found != reply.identity:
        reason = f"has identity {found!r} here and not {reply.identity!r}, though {claim}"
        raise StoreFailed(path=reply.path, reason=reason)
    return reply
