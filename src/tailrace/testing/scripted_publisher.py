"""A publisher that says what a test tells it to, over real Flight.

Each subscription that arrives becomes a `Line` of conversation: the test says `Down` messages into it and reads from
`heard` what came up. Actions are answered with `Done` unless `answers` holds something else for their kind; an error
there is raised to the subscriber. Nothing waits on time: `heard` waits for the message that a test names.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.updates.position import Checkpoint, Position
from tailrace.updates.schema import EMPTY_UPDATES, UPDATE_SCHEMA
from tailrace.wire import messages
from tailrace.wire.callers import Caller
from tailrace.wire.credentials import Credentials
from tailrace.wire.server import Server, Service, Stream

LIMIT_S: Final = 10.0
LINE: Final = "shop"

M = TypeVar("M", bound=messages.Message)
Parcel = tuple[pa.RecordBatch, bytes]


def updates(*rows: tuple[int, int] | tuple[int, int, int], era: int = 0, value: bytes = b"v") -> pa.RecordBatch:
    """A batch of puts, each row given as (shard, sequence) or (shard, sequence, index)."""
    full = [(*row, 0)[:3] for row in rows]
    return pa.RecordBatch.from_pylist(
        [
            {
                "shard": shard,
                "era": era,
                "sequence": sequence,
                "index": index,
                "table": "t",
                "operation": "put",
                "key": b"%d" % sequence,
                "pairs": [("value", value)],
            }
            for shard, sequence, index in full
        ],
        schema=UPDATE_SCHEMA,
    )


@dataclass(eq=False)
class Session:
    """One subscriber's stream: what it asked for, and the way to speak to it."""

    number: int
    ask: messages.Subscribe
    caller: Caller
    said: queue.SimpleQueue[Parcel | TailraceError | None] = field(default_factory=queue.SimpleQueue)
    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return f"session-{self.number}"

    def say(self, message: messages.Message, batch: pa.RecordBatch = EMPTY_UPDATES) -> None:
        self.say_raw(messages.encode(message), batch)

    def say_raw(self, metadata: bytes, batch: pa.RecordBatch = EMPTY_UPDATES) -> None:
        self.said.put((batch, metadata))

    def open(
        self,
        shards: Iterable[int] = (0,),
        *,
        epoch: int = 1,
        lease_s: float = 5.0,
        after: int = 0,
        standby: bool = False,
        sent_before: int | None = None,
    ) -> None:
        before = None if sent_before is None else Position(0, sent_before)
        self.say(messages.Opened(self.name, epoch, list(shards), lease_s, LINE, Position(0, after), standby, before))

    def send(self, batch: pa.RecordBatch, through: int | None = None, era: int = 0) -> None:
        """Updates; `through` is the last row's sequence unless said otherwise."""
        sequence: Any = batch.column("sequence")[-1].as_py() if through is None else through
        self.say(messages.Updates(LINE, Position(era, sequence)), batch)

    def token(self, number: int, through: int, shards: Iterable[int] = (0,)) -> None:
        self.say(messages.Token(number, LINE, list(shards), Checkpoint(Position(0, through), None)))

    def heartbeat(self, through: int) -> None:
        self.say(messages.Heartbeat(LINE, Position(0, through)))

    def fail(self, error: TailraceError) -> None:
        """Ends the stream with an error."""
        self.said.put(error)

    def end(self) -> None:
        """Ends the stream without a word."""
        self.said.put(None)

    def parcels(self) -> Iterator[Parcel]:
        try:
            while (said := self._next()) is not None:
                if isinstance(said, TailraceError):
                    raise said
                yield said
        finally:
            self.gone.set()

    def _next(self) -> Parcel | TailraceError | None:
        return self.said.get()


class ScriptedPublisher(Service):
    """Listens on a free port; use it as a context manager."""

    tickets = frozenset({"Subscribe"})

    def __init__(self, *, credentials: Credentials | None = None, peers: Iterable[str] = ()) -> None:
        self.peers = list(peers)
        self.answers: dict[str, messages.Message | TailraceError | Callable[[messages.Message], messages.Message]] = {}
        self.refusal: TailraceError | None = None
        self.heard_all: list[messages.Message] = []
        self._heard = threading.Condition()
        self._arrivals: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._sessions: list[Session] = []
        self.server = Server("127.0.0.1:0", [self], credentials)

    @property
    def url(self) -> str:
        return f"tailrace://{self.server.address}/shop"

    def subscriber(self) -> Session:
        """The next subscription to arrive."""
        return self._arrivals.get(timeout=LIMIT_S)

    def heard(self, kind: type[M], count: int = 1, such: Callable[[M], bool] = lambda message: True) -> list[M]:
        """The first `count` messages of a kind, waited for; later ones are left out."""
        deadline = time.monotonic() + LIMIT_S
        with self._heard:
            while len(found := [each for each in self.heard_all if isinstance(each, kind) and such(each)]) < count:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"heard {len(found)} {kind.__name__}, expected {count}: {self.heard_all}")
                self._heard.wait(left_s)
        return found[:count]

    # ---- the service ------------------------------------------------------------------------------------------------

    def actions(self) -> Mapping[str, Callable[[Caller, bytes], bytes]]:
        kinds = (
            messages.Hello,
            messages.Acknowledge,
            messages.Alive,
            messages.Leave,
            messages.BuryDead,
            messages.DeadDone,
            messages.Reached,
        )
        return {kind.__name__: self._answer for kind in kinds}

    def get(self, caller: Caller, ticket: bytes) -> Stream:
        ask = messages.decode_ticket(ticket)
        assert isinstance(ask, messages.Subscribe)
        caller.require("subscribe", ask.dataset, ask.application)
        if self.refusal is not None:
            raise self.refusal
        with self._heard:
            session = Session(len(self._sessions) + 1, ask, caller)
            self._sessions.append(session)
        self._arrivals.put(session)
        return Stream(UPDATE_SCHEMA, session.parcels())

    def stop(self) -> None:
        for session in self._sessions:
            session.end()

    def _answer(self, caller: Caller, body: bytes) -> bytes:
        message = messages.decode_up(body)
        with self._heard:
            self.heard_all.append(message)
            self._heard.notify_all()
        answer = self.answers.get(type(message).__name__)
        if callable(answer):
            answer = answer(message)
        if isinstance(answer, TailraceError):
            raise answer
        if answer is None and isinstance(message, messages.Hello):
            answer = messages.HelloReply(
                messages.PROTOCOL_VERSION,
                messages.OLDEST_PROTOCOL,
                "scripted",
                [self.server.address, *self.peers],
                [messages.DatasetInfo("shop", LINE, 4)],
            )
        return messages.encode(answer or messages.Done())

    def __enter__(self) -> ScriptedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
