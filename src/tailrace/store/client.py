"""Writes to a store over the network, many at a time, and reads from it.

A `StoreClient` keeps one write stream open. Writes are futures; how many may be unanswered is bounded, and callers wait
at the bound. Nothing is sent twice: when the connection breaks, writes that were sent and not answered fail with
`Disconnected`, and their outcome is unknown. The next write connects anew; while the store stays away, writes fail at
once until the backoff has passed, so that a caller is never held up by a server that is down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import cast

import pyarrow as pa

from tailrace.errors import Disconnected, ProtocolMismatch, TailraceError, Unavailable
from tailrace.runtime.backoff import Backoff, Retry
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.store.client_stream import ClientStream, Outgoing, Waiting
from tailrace.store.operations import WriteResult, conform, count_writes, put, require_types
from tailrace.store.options import require_durability
from tailrace.updates.pairs import decode_pairs
from tailrace.wire.addresses import parse_url
from tailrace.wire.client import Connection
from tailrace.wire.store_messages import (
    OPERATIONS_SCHEMA,
    DescribeStore,
    Durability,
    GetRows,
    GetRowsReply,
    OpenWrites,
    Operation,
    ScanRows,
    StoreDescription,
    decode_store_reply,
)
from tailrace.wire.tls import TLS

_BACKOFF = Backoff(first_s=0.05, limit_s=1.0)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How much may be sent and unanswered, and how long a silent store is believed to be alive.

    A store says something every second; one that is silent for `silence_s` while an answer is due is given up.
    """

    max_writes: int = 10_000
    max_bytes: int = 32 << 20
    silence_s: int = 10
    call_timeout_s: float = 10.0
    close_timeout_s: float = 10.0
    backoff: Backoff = _BACKOFF


class StoreClient:
    """A connection to the store at `store://host:port/dataset`. All methods may be called from any thread."""

    def __init__(
        self,
        url: str,
        *,
        credential: str | None = None,
        tls: TLS | None = None,
        durability: Durability | None = None,
        limits: ClientLimits | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self._endpoint = parse_url(url, scheme="store")
        self._dataset = self._endpoint.dataset
        self._durability = durability
        self._limits = limits or ClientLimits()
        self._clock = clock
        self._retry = Retry(self._limits.backoff, random)
        self._not_before = clock.monotonic()
        self._last_failure: TailraceError | None = None
        self._connect = partial(Connection, self._endpoint, credential, tls, self._limits.call_timeout_s)
        self._connection = self._connect()
        self._opening = Lock()  # guards the stream
        self._stream: ClientStream | None = None
        self._room = Condition()  # guards the counts
        self._unanswered_writes = self._unanswered_bytes = 0
        self._closed = Event()
        self._watch = Thread(target=self._run_watch, name="store-client-watch", daemon=True)
        self._watch.start()

    # ---- writing ---------------------------------------------------------------------------------------------------

    def put(self, table: str, key: bytes, value: Mapping[str, bytes | str | None] | bytes) -> Future[WriteResult]:
        return self.write([put(table, key, value)])

    def put_wait(
        self, table: str, key: bytes, value: Mapping[str, bytes | str | None] | bytes, timeout_s: float | None = None
    ) -> WriteResult:
        return self.put(table, key, value).result(timeout_s)

    def write(self, operations: Sequence[Operation], *, durability: Durability | None = None) -> Future[WriteResult]:
        """One atomic write. It may travel with others, and stays a write of its own; so what no message can carry, or
        no store would understand, is refused here."""
        write = list(operations)  # the caller may change its own, and this one may wait
        for operation in write:
            require_types(operation)
        size = sum(len(operation.key) + len(operation.value or b"") for operation in write)
        future = _future()
        self._send(Outgoing([write], None, [future], self._checked(durability), size))
        return future

    def write_batch(self, batch: pa.RecordBatch, *, durability: Durability | None = None) -> list[Future[WriteResult]]:
        """The writes in a record batch of `OPERATIONS_SCHEMA`, whose column `write` counts 0, 1, ...; the fast way to
        load much. One future per write."""
        batch = conform(batch)
        count = count_writes(batch)
        if count == 0:
            return []
        futures = [_future() for _ in range(count)]
        self._send(Outgoing([], batch, futures, self._checked(durability), batch.nbytes))
        return futures

    def _checked(self, durability: Durability | None) -> Durability | None:
        """What a write asks for; None is the store's own setting."""
        asked = durability or self._durability
        if asked is not None:
            require_durability("durability", asked)
        return asked

    def _send(self, outgoing: Outgoing) -> None:
        """Waits for room, then sends; what cannot be sent at all raises here."""
        writes, size = len(outgoing.futures), outgoing.size_bytes
        with self._room:
            self._room.wait_for(lambda: self._has_room(writes, size) or self._closed.is_set())
            self._unanswered_writes += writes
            self._unanswered_bytes += size
        try:
            while not self._open_stream().send(outgoing):
                pass  # it ended in between: the next one
        except Exception:
            self._answered(writes, size)
            raise

    def _has_room(self, writes: int, size: int) -> bool:
        return self._unanswered_writes == 0 or (
            self._unanswered_writes + writes <= self._limits.max_writes
            and self._unanswered_bytes + size <= self._limits.max_bytes
        )

    def _answered(self, writes: int, size: int) -> None:
        with self._room:
            self._unanswered_writes -= writes
            self._unanswered_bytes -= size
            self._room.notify_all()

    # ---- reading ---------------------------------------------------------------------------------------------------

    def get(self, table: str, key: bytes) -> dict[str, bytes | None] | None:
        """The pairs stored under a key; None if there are none. A value of another making is the pair `value`."""
        value = self.get_values(table, [key])[0]
        return None if value is None else decode_pairs(value)

    def get_values(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        reply = self._connection.call(GetRows(self._dataset, table, list(keys)), decode_store_reply)
        if not isinstance(reply, GetRowsReply):
            raise ProtocolMismatch(reason=f"{self._endpoint} answered GetRows with a {type(reply).__name__}")
        return reply.values

    def scan(
        self, table: str, begin: bytes | None = None, end: bytes | None = None, limit: int | None = None
    ) -> Iterator[tuple[bytes, dict[str, bytes | None]]]:
        """The rows of [begin, end) in key order, as of one moment."""
        for batch in self.scan_batches(table, begin, end, limit):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                yield cast(bytes, key), decode_pairs(cast(bytes, value))

    def scan_batches(
        self, table: str, begin: bytes | None = None, end: bytes | None = None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `scan`, in record batches of key and stored value."""
        with self._connection.get(ScanRows(self._dataset, table, begin, end, limit)) as rows:
            for batch, _ in rows:
                if batch is not None:
                    yield batch

    def describe(self) -> StoreDescription:
        reply = self._connection.call(DescribeStore(self._dataset), decode_store_reply)
        if not isinstance(reply, StoreDescription):
            raise ProtocolMismatch(reason=f"{self._endpoint} answered DescribeStore with a {type(reply).__name__}")
        return reply

    # ---- the stream ------------------------------------------------------------------------------------------------

    def _open_stream(self) -> ClientStream:
        stream = self._stream
        if stream is not None and stream.usable and not self._closed.is_set():
            return stream
        with self._opening:
            if self._closed.is_set():
                raise Unavailable(reason=f"the client of {self._endpoint} is closed")
            if self._stream is not None and self._stream.usable:
                return self._stream
            if self._clock.monotonic() < self._not_before:
                reason = f"not reached ({self._last_failure}); the next attempt is due soon"
                raise Disconnected(address=self._endpoint.address, reason=reason)
            try:
                self._stream = self._opened()
            except TailraceError as error:
                self._last_failure = error
                # gRPC has a backoff of its own per connection. Calls that still use the old one keep it alive.
                self._connection = self._connect()
                self._not_before = self._clock.monotonic() + self._retry.failed()
                raise
            return self._stream

    def _opened(self) -> ClientStream:
        """Asks first whether the store is there: a stream itself would tell only once something was sent."""
        self.describe()
        stream = self._connection.put(OpenWrites(self._dataset), OPERATIONS_SCHEMA)
        self._retry.succeeded()
        return ClientStream(stream, self._endpoint.address, self._answered)

    def _run_watch(self) -> None:
        """Gives up a store that is silent. Counts looks rather than time, so a process that was stopped looks again."""
        silent_looks = 0
        while not self._clock.wait(self._closed, 1.0):
            stream = self._stream
            if stream is None or stream.heard or not stream.is_waiting():
                silent_looks = 0
            else:
                silent_looks += 1
            if stream is not None:
                stream.heard = False
            if stream is not None and silent_looks >= self._limits.silence_s:
                silent_looks = 0
                reason = f"silent for {self._limits.silence_s} s"
                stream.verdict = Disconnected(address=self._endpoint.address, reason=reason)
                self._connection.abort()
                self._connection = self._connect()
                stream.break_off(stream.verdict)

    # ---- ending ----------------------------------------------------------------------------------------------------

    def drain(self, timeout_s: float | None = None) -> bool:
        """Waits until every write was answered or has failed; False if that took longer."""
        with self._room:
            return self._room.wait_for(lambda: self._unanswered_writes == 0, timeout_s)

    def close(self) -> None:
        """Waits for answers that are due, at most `close_timeout_s`, then ends. Does nothing the second time."""
        with self._opening:
            if self._closed.is_set():
                return
            self._closed.set()
            stream, self._stream = self._stream, None
        with self._room:
            self._room.notify_all()
        if stream is not None:
            self.drain(self._limits.close_timeout_s)
            stream.end()
            if not stream.join(self._limits.close_timeout_s):
                stream.break_off(Disconnected(address=self._endpoint.address, reason="no answer before the end"))
                self._connection.abort()
        self._watch.join()
        self._connection.close()

    def __enter__(self) -> StoreClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _future() -> Waiting:
    """Cannot be cancelled: the write is on its way as soon as its caller has the future."""
    future: Waiting = Future()
    future.set_running_or_notify_cancel()
    return future
