"""A connection to one server: actions, streams down, streams up, with the server's own errors raised here.

Connecting is lazy: the first call finds out whether anyone is there. Every action has a deadline; a stream has none,
since silence on it is judged by its own heartbeats, and `cancel` ends it from any thread at once.

Choices made for gRPC: each connection has sockets of its own (the shared pool would hand a new connection the old one's
backoff), it gives up an attempt to connect after `CONNECT_S`, messages may have any size, and keepalive pings stay off
(servers answer too many with a disconnect; heartbeats tell more). gRPC does not survive a fork: use `spawn`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import ConfigInvalid, ProtocolMismatch
from tailrace.wire.addresses import Endpoint, is_loopback, parse_address
from tailrace.wire.connections import drop_connections_to
from tailrace.wire.credentials import AUTHORIZATION, bearer
from tailrace.wire.failures import from_flight
from tailrace.wire.messages import Message, encode
from tailrace.wire.tls import TLS

CALL_TIMEOUT_S: Final = 10.0
CONNECT_S: Final = 5.0
_GRPC_OPTIONS: Final[list[tuple[str, int | str]]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", int(CONNECT_S * 1000)),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]

R = TypeVar("R")


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """The edge of the client: Flight's errors become ours inside."""
    try:
        yield
    except (flight.FlightError, pa.ArrowException, OSError, NotImplementedError) as error:
        raise from_flight(error, address) from _cause(error)


def _cause(error: BaseException) -> BaseException | None:
    """What to show behind our error: nothing if it is what the other side said, which gRPC only carried."""
    return None if getattr(error, "extra_info", b"") else error


class StreamReader:
    """A stream from the server: iterate (batch, metadata). Read by one thread; `cancel` may come from any."""

    def __init__(self, reader: flight.FlightStreamReader, address: str) -> None:
        self._reader = reader
        self._address = address
        self._finished = False

    @property
    def schema(self) -> pa.Schema:
        with _translated(self._address):
            return self._reader.schema

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch | None, bytes]]:
        return self

    def __next__(self) -> tuple[pa.RecordBatch | None, bytes]:
        """The next batch and the metadata beside it (empty if there is none)."""
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            self._finished = True
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is becomes an error of ours
            self._finished = True
            raise from_flight(error, self._address) from _cause(error)
        metadata = chunk.app_metadata
        return chunk.data, metadata.to_pybytes() if metadata is not None else b""

    def cancel(self) -> None:
        """Ends the stream; a `next` that waits in another thread raises `Disconnected`."""
        self._reader.cancel()

    def close(self) -> None:
        """Cancels what was not read to its end: an abandoned reader would otherwise wait for the rest of it."""
        if not self._finished:
            self._finished = True
            self.cancel()

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StreamWriter:
    """A stream to the server: `write` batches, read what it answers, `close` to learn whether all went well."""

    def __init__(self, writer: flight.FlightStreamWriter, answers: flight.FlightMetadataReader, address: str) -> None:
        self._writer = writer
        self._answers = answers
        self._address = address
        self._closed = False

    def write(self, batch: pa.RecordBatch, metadata: bytes | None = None) -> None:
        with _translated(self._address):
            if metadata is None:
                self._writer.write_batch(batch)
            else:
                self._writer.write_with_metadata(batch, cast(Any, metadata))

    def write_metadata(self, metadata: bytes) -> None:
        """A message without a batch: a tenth of the cost of one with an empty batch."""
        with _translated(self._address):
            self._writer.write_metadata(cast(Any, pa.py_buffer(metadata)))

    def read(self) -> bytes | None:
        """The server's next answer; None once it has ended."""
        with _translated(self._address):
            answer = self._answers.read()
            return None if answer is None else answer.to_pybytes()

    def done_writing(self) -> None:
        with _translated(self._address):
            self._writer.done_writing()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with _translated(self._address):
                self._writer.close()

    def __enter__(self) -> StreamWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection:
    """Safe to use from several threads; `close` when done."""

    def __init__(
        self,
        address: str | Endpoint,
        credential: str | None = None,
        tls: TLS | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        endpoint = parse_address(address) if isinstance(address, str) else address
        secure = endpoint.tls or tls is not None
        if credential is not None and not secure and not is_loopback(endpoint.host):
            raise ConfigInvalid(
                path="credential",
                reason=f"it would go to {endpoint.address} in the clear; use {endpoint.scheme}+tls:// or give tls=",
            )
        self.address = endpoint.address
        self._host, self._port = endpoint.host, endpoint.port
        self._headers = [] if credential is None else [(AUTHORIZATION.encode(), bearer(credential).encode())]
        self._timeout_s = timeout_s
        self._call_options = self._options(timeout_s)
        options: dict[str, Any] = (tls or TLS()).client_options() if secure else {}
        place = Endpoint(endpoint.host, endpoint.port, tls=secure)
        with _translated(self.address):
            self._client = flight.FlightClient(place.location, generic_options=_GRPC_OPTIONS, **options)

    def call(self, message: Message, decode: Callable[[bytes], R], timeout_s: float | None = None) -> R:
        """Sends `message` as an action and returns the decoded answer. `decode` is a `messages.Decoder`."""
        return decode(self.call_raw(type(message).__name__, encode(message), timeout_s))

    def call_raw(self, kind: str, body: bytes, timeout_s: float | None = None) -> bytes:
        options = self._call_options if timeout_s is None else self._options(timeout_s)
        with _translated(self.address):
            results = list(self._client.do_action(flight.Action(kind, cast(Any, body)), options))
        if len(results) != 1:
            raise ProtocolMismatch(reason=f"{self.address} gave {len(results)} answers to {kind}")
        return results[0].body.to_pybytes()

    def get(self, ticket: Message | bytes, timeout_s: float | None = None) -> StreamReader:
        """Opens the stream that `ticket` asks for; `timeout_s` bounds the whole of it, if given."""
        body = ticket if isinstance(ticket, bytes) else encode(ticket)
        # Flight waits for the stream's schema in there, and a stream without a deadline would let it wait for ever.
        watchdog = threading.Timer(self._timeout_s, self.abort) if timeout_s is None else None
        if watchdog is not None:
            watchdog.daemon = True
            watchdog.start()
        try:
            with _translated(self.address):
                reader = self._client.do_get(flight.Ticket(body), self._options(timeout_s))
        finally:
            if watchdog is not None:
                watchdog.cancel()
        return StreamReader(reader, self.address)

    def put(self, command: Message | bytes, schema: pa.Schema, timeout_s: float | None = None) -> StreamWriter:
        body = command if isinstance(command, bytes) else encode(command)
        descriptor = flight.FlightDescriptor.for_command(body)
        with _translated(self.address):
            writer, answers = self._client.do_put(descriptor, schema, self._options(timeout_s))
        return StreamWriter(writer, cast(Any, answers), self.address)

    def flights(self) -> list[flight.FlightInfo]:
        with _translated(self.address):
            return list(self._client.list_flights(None, self._call_options))

    def abort(self) -> None:
        """Breaks calls that hang and that nothing else ends. Other connections of this process to the same address
        break as well, and connect again."""
        drop_connections_to(self._host, self._port)

    def close(self) -> None:
        self._client.close()

    def _options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout_s, headers=cast(Any, self._headers))

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
