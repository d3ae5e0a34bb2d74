"""The publisher's part of a Flight port: which message goes where, and which scope it needs.

A subscriber's `DoGet` runs its stream's generator; everything else is an action. Each action names what it acts on, and
the caller's credential must hold the scope for that:

- `subscribe` for an application: its flows, and all that concerns a session of one of its subscribers;
- `read` for an application: its status, how far it has got, its dead letters; `admin` for it: to try those again;
- `read` of a dataset as a whole, with a scope that is not narrowed to applications: ranges of its log.

A dataset's name, line, head and troubles are shown to whoever may do anything (in a status: read anything) of it; the
names of its other applications are not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final

import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import CredentialRefused, NotFound
from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.ranges import read_range
from tailrace.publisher.status import application_status, dataset_status
from tailrace.publisher.stream import Parcel, Stream
from tailrace.updates.schema import UPDATE_SCHEMA
from tailrace.wire import server
from tailrace.wire.callers import Action, Caller
from tailrace.wire.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL_VERSION,
    Acknowledge,
    Alive,
    BuryDead,
    DatasetInfo,
    DeadDone,
    DeadList,
    DeadListReply,
    DeadRetry,
    DeadRetryReply,
    DeadShow,
    DeadShowReply,
    Done,
    Hello,
    HelloReply,
    Leave,
    Reached,
    ReachedReply,
    ReadRange,
    Reply,
    Status,
    StatusReply,
    Subscribe,
    Up,
    decode_ticket,
    decode_up,
    encode,
    require_version,
)

Handler = Callable[[Caller, Up], Reply]
DONE: Final = Done()


class PublisherService(server.Service):
    """Serves several datasets on one port."""

    tickets = frozenset({"Subscribe", "ReadRange"})

    def __init__(self, datasets: Sequence[DatasetPublisher], *, address: str, peers: Sequence[str] = ()) -> None:
        self._datasets = {publisher.dataset: publisher for publisher in datasets}
        self._address = address
        self._peers = [address, *peers]
        self._started_at = time.time()
        self._stop = threading.Event()

    def actions(self) -> Mapping[str, server.ActionHandler]:
        handlers: dict[type[Up], Callable[..., Reply]] = {
            Hello: self._hello,
            Acknowledge: self._acknowledge,
            Alive: self._alive,
            Leave: self._leave,
            BuryDead: self._bury,
            DeadDone: self._dead_done,
            Status: self._status,
            Reached: self._reached,
            DeadList: self._dead_list,
            DeadShow: self._dead_show,
            DeadRetry: self._dead_retry,
        }
        return {kind.__name__: _action(handler) for kind, handler in handlers.items()}

    def stop(self) -> None:
        self._stop.set()
        for publisher in self._datasets.values():
            publisher.drain()
        for publisher in self._datasets.values():
            publisher.close()

    def flights(self, caller: Caller) -> Iterable[flight.FlightInfo]:
        for publisher in self._datasets.values():
            if caller.may("read", publisher.dataset):
                ticket = flight.Ticket(encode(ReadRange(dataset=publisher.dataset)))
                endpoint = flight.FlightEndpoint(ticket, [])
                descriptor = flight.FlightDescriptor.for_path(publisher.dataset)
                yield flight.FlightInfo(UPDATE_SCHEMA, descriptor, [endpoint], -1, -1)

    # ---- streams ----------------------------------------------------------------------------------------------------

    def get(self, caller: Caller, ticket: bytes) -> server.Stream:
        ask = decode_ticket(ticket)
        require_version(ask.version)
        if isinstance(ask, Subscribe):
            publisher = self._of_application(caller, "subscribe", ask)
            stream = publisher.subscribe(ask)
            return server.Stream(UPDATE_SCHEMA, _encoded(self._subscription(publisher, stream)))
        caller.require("read", ask.dataset)
        source = self._dataset(caller, ask.dataset).source
        return server.Stream(UPDATE_SCHEMA, _encoded(read_range(source, ask, self._stop)))

    def _subscription(self, publisher: DatasetPublisher, stream: Stream) -> Iterator[Parcel]:
        try:
            yield from stream.messages()
        finally:
            publisher.disconnected(stream)

    # ---- actions ----------------------------------------------------------------------------------------------------

    def _hello(self, caller: Caller, ask: Hello) -> HelloReply:
        return HelloReply(
            version=PROTOCOL_VERSION,
            oldest_version=OLDEST_PROTOCOL,
            software=f"tailrace {version('tailrace')}",
            peers=self._peers,
            datasets=[
                DatasetInfo(publisher.dataset, publisher.source.line, len(publisher.shards))
                for publisher in self._known(caller)
            ],
        )

    def _acknowledge(self, caller: Caller, ask: Acknowledge) -> Done:
        self._of_session(caller, ask.session).acknowledge(ask)
        return DONE

    def _alive(self, caller: Caller, ask: Alive) -> Done:
        self._of_session(caller, ask.session).alive(ask)
        return DONE

    def _leave(self, caller: Caller, ask: Leave) -> Done:
        self._of_session(caller, ask.session).leave(ask)
        return DONE

    def _bury(self, caller: Caller, ask: BuryDead) -> Done:
        publisher = self._of_session(caller, ask.session)
        publisher.bury(
            ask.session,
            lambda app: publisher.dead.bury(publisher.dataset, app.name, ask.updates, ask.errors, ask.attempts),
        )
        return DONE

    def _dead_done(self, caller: Caller, ask: DeadDone) -> Done:
        publisher = self._of_session(caller, ask.session)
        publisher.bury(
            ask.session,
            lambda app: -publisher.dead.settle(publisher.dataset, app.name, ask.done, ask.failed),
            adds=False,
        )
        return DONE

    def _status(self, caller: Caller, ask: Status) -> StatusReply:
        seen = self._known(caller, "read")
        return StatusReply(
            address=self._address,
            started_at=self._started_at,
            datasets=[dataset_status(publisher, caller) for publisher in seen],
            applications=[
                application_status(publisher, application)
                for publisher in seen
                for application in publisher.applications()
                if caller.may("read", publisher.dataset, application.name)
            ],
        )

    def _reached(self, caller: Caller, ask: Reached) -> ReachedReply:
        reached, progress = self._of_application(caller, "read", ask).reached(ask.application, ask.position)
        return ReachedReply(reached=reached, progress=progress)

    def _dead_list(self, caller: Caller, ask: DeadList) -> DeadListReply:
        publisher = self._of_application(caller, "read", ask)
        publisher.application(ask.application)
        letters, total = publisher.dead.list(ask.dataset, ask.application, ask.limit)
        return DeadListReply(letters=letters, total=total)

    def _dead_show(self, caller: Caller, ask: DeadShow) -> DeadShowReply:
        publisher = self._of_application(caller, "read", ask)
        letter, update = publisher.dead.show(ask.dataset, ask.application, ask.letter)
        return DeadShowReply(letter=letter, update=update)

    def _dead_retry(self, caller: Caller, ask: DeadRetry) -> DeadRetryReply:
        publisher = self._of_application(caller, "admin", ask)
        return DeadRetryReply(retrying=publisher.retry_dead(ask.application, ask.letters))

    # ---- who is meant -----------------------------------------------------------------------------------------------

    def _known(self, caller: Caller, action: Action | None = None) -> list[DatasetPublisher]:
        """The datasets of which a caller may do this, or anything, at least for one application."""
        return [one for one in self._datasets.values() if caller.may_in_part(one.dataset, action)]

    def _dataset(self, caller: Caller, name: str) -> DatasetPublisher:
        found = self._datasets.get(name)
        if found is None:
            known = ", ".join(sorted(one.dataset for one in self._known(caller))) or "none that you may use"
            raise NotFound(what="dataset", name=name, remedy=f"this publisher serves: {known}")
        return found

    def _of_application(
        self, caller: Caller, action: Action, ask: Subscribe | Reached | DeadList | DeadShow | DeadRetry
    ) -> DatasetPublisher:
        caller.require(action, ask.dataset, ask.application)
        return self._dataset(caller, ask.dataset)

    def _of_session(self, caller: Caller, session: str) -> DatasetPublisher:
        """The publisher that opened a session; one that is over is refused by any that the caller may subscribe to."""
        for publisher in self._datasets.values():
            application = publisher.application_of(session)
            if application is not None:
                caller.require("subscribe", publisher.dataset, application)
                return publisher
        allowed = self._known(caller, "subscribe")
        if not allowed:
            raise CredentialRefused(reason=f"{caller.name!r} lacks the scope 'subscribe' on every dataset here")
        return allowed[0]


def _action(handler: Callable[..., Reply]) -> server.ActionHandler:
    def answer(caller: Caller, body: bytes) -> bytes:
        return encode(handler(caller, decode_up(body)))

    return answer


def _encoded(parcels: Iterator[Parcel]) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Closes the stream's generator with its own, so that a broken connection is noticed at once."""
    try:
        for batch, message in parcels:
            yield batch, encode(message)
    finally:
        close = getattr(parcels, "close", None)
        if close:
            close()
