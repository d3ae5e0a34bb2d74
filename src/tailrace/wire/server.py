"""One Flight port for several services, with callers known and errors carried across.

A service declares the message kinds that it answers: its actions by name, and the `kind` tags of its tickets and put
commands. The server reads only that tag and looks the service up. Streams pass through a guard that turns what a
service raises in mid-stream into the error the client will see, and that ends them once their credential is revoked:
it is looked up again about once a second, when a message is due.

`shutdown` is bounded. Services are told first and end their streams in their own words; what still runs after the grace
period ends with `Unavailable`; a call blocked by a client that does not read is ended by closing its connection, the
only way that gRPC leaves (its shutdown waits for every call, and a call blocked on flow control notices nothing else).

gRPC's options stay as Flight sets them, for pyarrow offers none to a server: no keepalive (each side notices a dead
peer by the heartbeats of its own protocol), and messages of any size, which are in memory before Flight says that they
came. What a known caller asks may have `MAX_REQUEST_BYTES`; batches are bounded by those who make them. An unknown one
is kept off by mutual TLS alone; see SECURITY.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import ConfigInvalid, Disconnected, ProtocolMismatch, Unavailable
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock, Deadline
from tailrace.wire.addresses import Endpoint, is_loopback, parse_address
from tailrace.wire.callers import ANYONE, Admission, Caller
from tailrace.wire.connections import drop_connections
from tailrace.wire.credentials import AUTHORIZATION, Credentials
from tailrace.wire.failures import to_flight
from tailrace.wire.tls import TLS

logger: Final = logging.getLogger(__name__)

GRACE_S: Final = 2.0  # for services to end their streams by themselves
DROP_AFTER_S: Final = 2.0  # more, before connections are closed
DROPPING_S: Final = 8.0  # for calls to notice that their connections are gone, on a machine that is busy
MAX_REQUEST_BYTES: Final = 256 << 20  # an action's body, a ticket or a command; the largest hold dead updates whole

ActionHandler = Callable[[Caller, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Stream:
    """What a service answers a ticket with: batches, alone or each with the metadata that travels beside it."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]


class PutReader:
    """What a client puts: chunks with `data` and `app_metadata`, then `StopIteration`."""

    def __init__(self, reader: flight.MetadataRecordBatchReader, admission: Admission) -> None:
        self._reader = reader
        self._admission = admission

    def read_chunk(self) -> flight.FlightStreamChunk:
        chunk = self._reader.read_chunk()
        self._admission.check()
        return chunk

    def __iter__(self) -> PutReader:
        return self

    __next__ = read_chunk


class Service:
    """One role on a port. Override what it answers; all methods are called from many threads at once.

    `tickets` and `commands` are the kinds that `get` and `put` answer; None or False from them means "not mine after
    all" and becomes an error. Raise `TailraceError`s; anything else is a bug and is logged as one.
    """

    tickets: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()

    def actions(self) -> Mapping[str, ActionHandler]:
        """By message kind; asked once, when the server starts."""
        return {}

    def get(self, caller: Caller, ticket: bytes) -> Stream | flight.FlightDataStream | None:
        return None

    def put(
        self,
        caller: Caller,
        command: bytes,
        reader: PutReader,
        writer: flight.FlightMetadataWriter,
    ) -> bool:
        return False

    def flights(self, caller: Caller) -> Iterable[flight.FlightInfo]:
        return ()

    def stop(self) -> None:
        """The server shuts down: end streams soon. Other calls are still answered while this runs; do not raise."""


class Server:
    """Listens from construction until `shutdown`."""

    def __init__(
        self,
        listen: str,
        services: Sequence[Service],
        credentials: Credentials | None = None,
        tls: TLS | None = None,
        *,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        endpoint = parse_address(listen)
        _require_safe(endpoint, credentials, tls)
        self._services = tuple(services)
        self._ending = threading.Event()
        self._closed = threading.Event()
        self._closing = threading.Lock()
        self._ended_well = True
        options = tls.server_options() if tls is not None else {}
        place = Endpoint(endpoint.host, endpoint.port, tls=tls is not None)
        try:
            self._front = _Front(
                _Routes(self._services), _Door(credentials, max_request_bytes, clock), self._ending, place, options
            )
        except (OSError, pa.ArrowException, flight.FlightError) as error:
            raise Disconnected(address=endpoint.address, reason=f"cannot listen there: {error}") from error
        self._host = endpoint.host
        self._tls = tls is not None

    @property
    def port(self) -> int:
        return int(self._front.port)

    @property
    def address(self) -> str:
        return Endpoint(self._host, self.port).address

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the server was shut down; False if `timeout_s` passed first."""
        return self._closed.wait(timeout_s)

    def shutdown(self, grace_s: float = GRACE_S) -> bool:
        """Ends all calls and stops listening, within about `grace_s` + 10 s. False: a call still hangs in a service."""
        with self._closing:
            if self._closed.is_set():
                return self._ended_well
            for service in self._services:
                try:
                    service.stop()
                except Exception:
                    logger.exception("service %s failed to stop", type(service).__name__)
            self._ended_well = self._end_calls(grace_s)
            self._closed.set()
            return self._ended_well

    def _end_calls(self, grace_s: float) -> bool:
        closer = threading.Thread(target=self._front.shutdown, name="wire-shutdown", daemon=True)
        port = self.port
        closer.start()
        closer.join(grace_s)
        self._ending.set()
        if closer.is_alive():
            closer.join(DROP_AFTER_S)
        give_up = Deadline(DROPPING_S)
        while closer.is_alive() and not give_up.passed():
            logger.warning("closed %d connections whose calls did not end", drop_connections(port))
            closer.join(0.5)
        if closer.is_alive():
            logger.error("a call on port %d does not end", port)
        return not closer.is_alive()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _require_safe(endpoint: Endpoint, credentials: Credentials | None, tls: TLS | None) -> None:
    if is_loopback(endpoint.host) or (credentials is not None and tls is not None):
        return
    missing = " and ".join(
        name for name, there in (("TLS", tls is not None), ("credentials", credentials is not None)) if not there
    )
    raise ConfigInvalid(
        path="node.listen",
        reason=f"{endpoint.address} can be reached from other machines, and {missing} are not configured; "
        "configure [tls] and credentials, or listen on 127.0.0.1",
    )


class _Kind(msgspec.Struct):
    kind: str


_kind_of: Final = msgspec.msgpack.Decoder(_Kind).decode


def kind_of(message: bytes) -> str:
    """The tag of an encoded message."""
    try:
        return _kind_of(message).kind
    except msgspec.MsgspecError as error:
        raise ProtocolMismatch(reason=f"a request carries no message kind: {error}") from error


class _Routes:
    """From a message's kind to the service that answers it."""

    def __init__(self, services: Sequence[Service]) -> None:
        self.services = services
        self.actions: dict[str, ActionHandler] = {}
        self.tickets: dict[str, Service] = {}
        self.commands: dict[str, Service] = {}
        for service in services:
            for name, handler in service.actions().items():
                assert name not in self.actions, f"two services answer the action {name}"
                self.actions[name] = handler
            for kinds, table in ((service.tickets, self.tickets), (service.commands, self.commands)):
                for kind in kinds:
                    assert kind not in table, f"two services answer {kind}"
                    table[kind] = service


def _unknown(what: str, kind: str) -> ProtocolMismatch:
    return ProtocolMismatch(reason=f"this server does not answer the {what} {kind!r}")


class _CallerMiddleware(flight.ServerMiddleware):
    """Holds what a call's headers said until the handler asks who calls."""

    def __init__(self, authorization: str | None) -> None:
        self.authorization = authorization


class _CallerMiddlewareFactory(flight.ServerMiddlewareFactory):
    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Any]) -> _CallerMiddleware:
        for name, values in headers.items():
            if name.lower() == AUTHORIZATION:
                first = values[0] if values else ""
                return _CallerMiddleware(first if isinstance(first, str) else first.decode("latin-1"))
        return _CallerMiddleware(None)


class _Door:
    """Who is let in, and with how much."""

    def __init__(self, credentials: Credentials | None, max_request_bytes: int, clock: Clock) -> None:
        self._credentials = credentials
        self._max_request_bytes = max_request_bytes
        self._clock = clock

    def middleware(self) -> dict[str, flight.ServerMiddlewareFactory] | None:
        return {"caller": _CallerMiddlewareFactory()} if self._credentials is not None else None

    def admit(self, context: flight.ServerCallContext) -> Admission:
        shown = str(context.peer())
        if self._credentials is None:
            return Admission(lambda: Caller(ANYONE.name, ANYONE.scopes, shown), self._clock)
        held = context.get_middleware("caller")
        authorization = held.authorization if isinstance(held, _CallerMiddleware) else None
        return Admission(partial(self._credentials.caller, authorization, shown), self._clock)

    def bounded(self, request: bytes | pa.Buffer) -> bytes:
        """A request's bytes, copied only if they are not too many. For those that were let in."""
        size = len(request)
        if size > self._max_request_bytes:
            raise ProtocolMismatch(reason=f"a request has {size} bytes, at most {self._max_request_bytes}")
        return request if isinstance(request, bytes) else request.to_pybytes()


class _Front(flight.FlightServerBase):
    """What Flight calls. Serves from construction on, so that everything is set before the base class starts."""

    def __init__(
        self,
        routes: _Routes,
        door: _Door,
        ending: threading.Event,
        place: Endpoint,
        options: dict[str, Any],
    ) -> None:
        self._routes = routes
        self._door = door
        self._ending = ending
        super().__init__(place.location, middleware=cast(Any, door.middleware()), **options)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        kind = action.type
        try:
            caller = self._door.admit(context).caller
            handler = self._routes.actions.get(kind)
            if handler is None:
                raise _unknown("action", kind)
            return [handler(caller, self._door.bounded(action.body))]
        except Exception as error:
            raise to_flight(error, f"answering {kind}") from error

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            admission = self._door.admit(context)
            body = self._door.bounded(ticket.ticket)
            kind = kind_of(body)
            service = self._routes.tickets.get(kind)
            answer = service.get(admission.caller, body) if service is not None else None
            if answer is None:
                raise _unknown("ticket", kind)
        except Exception as error:
            raise to_flight(error, "opening a stream") from error
        if isinstance(answer, Stream):
            return flight.GeneratorStream(answer.schema, cast(Any, self._guarded(answer.batches, kind, admission)))
        return answer

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        try:
            admission = self._door.admit(context)
            body = self._door.bounded(descriptor.command or b"")
            kind = kind_of(body)
            service = self._routes.commands.get(kind)
            if service is None or not service.put(admission.caller, body, PutReader(reader, admission), writer):
                raise _unknown("command", kind)
        except Exception as error:
            raise to_flight(error, "receiving a stream") from error

    def list_flights(self, context: flight.ServerCallContext, criteria: Any) -> Iterator[flight.FlightInfo]:
        try:
            caller = self._door.admit(context).caller
            infos = [info for service in self._routes.services for info in service.flights(caller)]
        except Exception as error:
            raise to_flight(error, "listing flights") from error
        return iter(infos)

    def _guarded(self, batches: Iterator[Any], kind: str, admission: Admission) -> Iterator[Any]:
        """Yields what the service yields, until it ends, fails, its caller is refused or the server has to end."""
        ending = self._ending.is_set
        try:
            for item in batches:
                admission.check()
                yield item
                if ending():
                    raise Unavailable(reason="the server is shutting down")
        except Exception as error:
            raise to_flight(error, f"streaming {kind}") from error
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
