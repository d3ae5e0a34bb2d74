"""The server's side of one write stream: reads ahead, and answers whatever became durable meanwhile.

The handler's thread reads messages, checks their writes and queues them; it never waits for an fsync, so the next
message is read while the last one is on its way to the disk. The store answers into a queue, which a second thread
empties: all that gathered while the last answer was being sent goes into the next one. What was read and is not
answered yet is bounded, so a client that does not take its answers is not read from either.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Condition, Event, Thread
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import ProtocolMismatch, TailraceError, UpdateInvalid
from tailrace.store.commits import Outcome
from tailrace.store.engine import Store
from tailrace.store.operations import Prepared, WriteResult, prepare, prepare_batch
from tailrace.wire.failures import from_flight, plain
from tailrace.wire.messages import Message, encode
from tailrace.wire.store_messages import Answer, Answers, Durability, StoreGoodbye, Writes, decode_write_up

HEARTBEAT_S: Final = 1.0
MAX_UNANSWERED_WRITES: Final = 20_000
MAX_ANSWERS_PER_MESSAGE: Final = 10_000


class Incoming(Protocol):
    """A put stream as Flight gives it: chunks with `data` and `app_metadata`, then `StopIteration`."""

    def read_chunk(self) -> Any: ...


class Outgoing(Protocol):
    def write(self, buffer: Any) -> None: ...


class WriteStream:
    """One client's writes, until it has sent its last."""

    def __init__(self, store: Store, incoming: Incoming, outgoing: Outgoing) -> None:
        self._store = store
        self._incoming = incoming
        self._outgoing = outgoing
        self._answers: SimpleQueue[list[Answer] | None] = SimpleQueue()  # None wakes the answering thread
        self._unanswered = 0
        self._changed = Condition()
        self._read_all = False
        self._broken: Exception | None = None  # the client takes no more answers
        self._goodbye = Event()
        self._thread = Thread(target=self._run_answers, name="store-answers", daemon=True)

    def serve(self) -> None:
        """Returns when the client has ended its stream and everything is answered."""
        self._thread.start()
        try:
            while self._await_room():
                chunk = self._next_chunk()
                if chunk is None:
                    break
                self._receive(chunk)
        finally:
            with self._changed:
                self._read_all = True
            self._answers.put(None)
            self._thread.join()

    def say_goodbye(self) -> None:
        """Asks the client to end the stream."""
        self._goodbye.set()
        self._answers.put(None)

    # ---- the handler's thread --------------------------------------------------------------------------------------

    def _await_room(self) -> bool:
        """False once answers cannot be sent any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._unanswered < MAX_UNANSWERED_WRITES or self._broken)
            return self._broken is None

    def _next_chunk(self) -> Any:
        """None once the client has sent its last."""
        try:
            return self._incoming.read_chunk()
        except StopIteration:
            return None
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise from_flight(error, "a client that was writing") from error

    def _receive(self, chunk: Any) -> None:
        if chunk.app_metadata is None:
            raise ProtocolMismatch(reason="a message on a write stream says nothing of itself (no app_metadata)")
        message = decode_write_up(chunk.app_metadata.to_pybytes())
        if isinstance(message, Writes):
            numbered = self._prepared(message)
        elif chunk.data is None:
            raise ProtocolMismatch(reason="a WriteTable came without its record batch")
        else:
            numbered = self._prepared_batch(cast(pa.RecordBatch, chunk.data))
        self._submit(numbered, message.durability)

    def _prepared(self, message: Writes) -> list[tuple[int, Prepared | TailraceError]]:
        numbered: list[tuple[int, Prepared | TailraceError]] = []
        for number, operations in enumerate(message.writes, message.first):
            try:
                numbered.append((number, prepare(operations, self._store.options)))
            except TailraceError as error:
                numbered.append((number, error))
        return numbered

    def _prepared_batch(self, batch: pa.RecordBatch) -> list[tuple[int, Prepared | TailraceError]]:
        try:
            return [(entry.number, entry.write) for entry in prepare_batch(batch, self._store.options)]
        except UpdateInvalid as error:  # the batch as a whole
            return [(int(number), error) for number in np.unique(np.asarray(batch.column("write")))]

    def _submit(self, numbered: Sequence[tuple[int, Prepared | TailraceError]], durability: Durability | None) -> None:
        with self._changed:
            self._unanswered += len(numbered)
        refused = [answer_of(number, write) for number, write in numbered if isinstance(write, TailraceError)]
        if refused:
            self._answers.put(refused)
        numbers = [number for number, write in numbered if isinstance(write, Prepared)]
        writes = [write for _, write in numbered if isinstance(write, Prepared)]

        def answer(outcomes: Sequence[Outcome]) -> None:
            self._answers.put([answer_of(*entry) for entry in zip(numbers, outcomes, strict=True)])

        try:
            self._store.submit_prepared(writes, answer, durability=durability)
        except TailraceError as error:
            answer([error] * len(writes))

    # ---- the answering thread --------------------------------------------------------------------------------------

    def _run_answers(self) -> None:
        said_goodbye = False
        while not (self._read_all and self._unanswered == 0):
            answers = self._gathered()
            try:
                if self._goodbye.is_set() and not said_goodbye:
                    said_goodbye = True
                    self._send(StoreGoodbye("the store is stopping"))
                self._send(Answers(self._store.era, answers))
            except (flight.FlightError, pa.ArrowException, OSError) as error:  # gone; its writes are made all the same
                with self._changed:
                    self._broken = error
            with self._changed:
                self._unanswered -= len(answers)
                self._changed.notify_all()

    def _send(self, message: Message) -> None:
        if self._broken is None:
            self._outgoing.write(pa.py_buffer(encode(message)))

    def _gathered(self) -> list[Answer]:
        """Waits for answers, takes what is there; empty after a second, or when there is something else to do."""
        gathered: list[Answer] = []
        try:
            gathered += self._answers.get(timeout=HEARTBEAT_S) or ()
            while len(gathered) < MAX_ANSWERS_PER_MESSAGE:
                gathered += self._answers.get_nowait() or ()
        except Empty:
            pass  # nothing more, for now
        return gathered


def answer_of(number: int, outcome: object) -> Answer:
    if isinstance(outcome, WriteResult):
        return Answer(number, outcome.first, outcome.last)
    assert isinstance(outcome, TailraceError)
    return Answer(number, 0, 0, type(outcome).__name__, plain(outcome.fields))
