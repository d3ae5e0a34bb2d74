"""The client's side of one write stream: sends, and hands each answer to the future that waits for it.

No thread is needed for sending: a caller sends itself, unless `MAX_MESSAGES_UNANSWERED` are on their way. Writes that
come then gather, and the reader thread, which takes the answers, sends them as one message once there is room. So the
messages grow with the load: a message costs both sides as much as ten writes in it.

A stream breaks once, for good. All writes that were not answered by then fail, as nobody knows whether they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition, Lock, Thread
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import CredentialRefused, Disconnected, NotFound, TailraceError, VersionTooNew
from tailrace.store.operations import WriteResult
from tailrace.updates.position import Position
from tailrace.wire.client import StreamWriter
from tailrace.wire.messages import encode
from tailrace.wire.store_messages import (
    OPERATIONS_SCHEMA,
    Answer,
    Answers,
    Durability,
    Operation,
    StoreGoodbye,
    Writes,
    WriteTable,
    decode_write_down,
)

MAX_MESSAGES_UNANSWERED: Final = 2  # of small writes; record batches are large enough
MAX_WRITES_PER_MESSAGE: Final = 1_000
MAX_BYTES_PER_MESSAGE: Final = 1 << 20
_SAYS_WHY: Final = (CredentialRefused, NotFound, VersionTooNew)  # the stream was refused: no write on it was made

Waiting = Future[WriteResult]


class Outgoing:
    """Writes that wait to be sent: a few small ones, each with its future, or a record batch with one per write."""

    __slots__ = ("batch", "durability", "futures", "size_bytes", "writes")

    def __init__(
        self,
        writes: Sequence[list[Operation]],
        batch: pa.RecordBatch | None,
        futures: Sequence[Waiting],
        durability: Durability | None,
        size_bytes: int,
    ) -> None:
        self.writes = writes
        self.batch = batch
        self.futures = futures
        self.durability = durability
        self.size_bytes = size_bytes


class Message:
    """One message on its way; `left` of its writes are unanswered."""

    __slots__ = ("is_small", "left", "outgoing")

    def __init__(self, outgoing: Sequence[Outgoing]) -> None:
        self.outgoing = outgoing
        self.is_small = outgoing[0].batch is None
        self.left = sum(len(entry.futures) for entry in outgoing)


class ClientStream:
    """One open write stream. `answered` is told how many writes and bytes were answered or failed, at once."""

    def __init__(self, stream: StreamWriter, address: str, answered: Callable[[int, int], None]) -> None:
        self._stream = stream
        self._address = address
        self._answered = answered
        self._gathered: deque[Outgoing] = deque()
        self._waiting: dict[int, tuple[Waiting, int, Message]] = {}  # by number, with the bytes that its answer frees
        self._messages = 0  # unanswered ones of small writes
        self._next_number = 0
        self._lock = Lock()  # guards all that stands above and below it
        self._sent = Condition(self._lock)
        self._sending = False
        self._ending = False  # nothing more is taken
        self._half_closed = False
        self._ended: TailraceError | None = None
        self.verdict: TailraceError | None = None  # what the stream is to break with, whatever breaks it
        self.heard = True  # something came since this was last set to False
        self._reader = Thread(target=self._run_answers, name="store-client-answers", daemon=True)
        self._reader.start()

    @property
    def usable(self) -> bool:
        return self._ended is None and not self._ending

    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def send(self, outgoing: Outgoing) -> bool:
        """Leaves the writes with whoever is sending, or sends until nothing is left. False: the stream takes none."""
        with self._lock:
            if not self.usable:
                return False
            self._gathered.append(outgoing)
            if self._sending:
                return True
            self._sending = True
        self._send_all()
        return True

    def _send_all(self) -> None:
        try:
            while (numbered := self._next_message()) is not None:
                self._transmit(*numbered)
        except BaseException as error:  # whatever it is, those who wait must be answered
            self._give_up(error)
            if not isinstance(error, Exception):
                raise
        self._half_close()

    def _next_message(self) -> tuple[Message, int] | None:
        """What to send now, with its first number. None ends the sending: whoever has more to send begins anew."""
        with self._lock:
            message = self._taken()
            if message is not None:
                return message, self._number(message)
            self._sending = False
            self._sent.notify_all()
            return None

    def _give_up(self, error: BaseException) -> None:
        """A message could not be sent: nothing more is, and the server learns that it has heard the last."""
        try:
            self.break_off(_translated(error, self._address))
            self._done_writing()
        finally:
            with self._lock:
                self._sending = False
                self._sent.notify_all()

    def _taken(self) -> Message | None:
        """What goes into the next message: one record batch alone, or small writes of equal durability."""
        if not self._gathered or (self._messages >= MAX_MESSAGES_UNANSWERED and self._gathered[0].batch is None):
            return None
        message: list[Outgoing] = []
        writes = size = 0
        while self._gathered:
            following = self._gathered[0]
            if message and (
                message[0].batch is not None
                or following.batch is not None
                or following.durability != message[0].durability
                or writes + len(following.writes) > MAX_WRITES_PER_MESSAGE
                or size + following.size_bytes > MAX_BYTES_PER_MESSAGE
            ):
                break
            message.append(self._gathered.popleft())
            writes += len(following.writes)
            size += following.size_bytes
        return Message(message)

    def _number(self, message: Message) -> int:
        self._messages += message.is_small
        first = self._next_number
        for outgoing in message.outgoing:
            share = outgoing.size_bytes // len(outgoing.futures)
            freed = outgoing.size_bytes - share * (len(outgoing.futures) - 1)
            for future in outgoing.futures:
                self._waiting[self._next_number] = (future, freed, message)
                self._next_number += 1
                freed = share
        return first

    def _transmit(self, message: Message, first: int) -> None:
        batch, durability = message.outgoing[0].batch, message.outgoing[0].durability
        if batch is None:
            writes = [write for outgoing in message.outgoing for write in outgoing.writes]
            self._stream.write_metadata(encode(Writes(first, writes, durability)))
            return
        numbers = pc.add(batch.column("write"), pa.scalar(first, pa.int64()))
        renumbered = pa.RecordBatch.from_arrays([numbers, *batch.columns[1:]], schema=OPERATIONS_SCHEMA)
        self._stream.write(renumbered, encode(WriteTable(durability)))

    # ---- answers ---------------------------------------------------------------------------------------------------

    def _run_answers(self) -> None:
        try:
            while (data := self._stream.read()) is not None:
                self.heard = True
                message = decode_write_down(data)
                if isinstance(message, Answers):
                    self._take(message)
                elif isinstance(message, StoreGoodbye):
                    self.end()
            self._close()
            self.break_off(Disconnected(address=self._address, reason="the server ended the stream"))
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must be answered
            self.break_off(_translated(error, self._address))

    def _take(self, message: Answers) -> None:
        settled: list[tuple[Waiting, Answer]] = []
        freed = 0
        with self._lock:
            for answer in message.answers:
                waiting = self._waiting.pop(answer.write, None)
                if waiting is None:
                    continue  # it failed here already, as the stream was given up
                future, size, sent = waiting
                settled.append((future, answer))
                freed += size
                sent.left -= 1
                self._messages -= sent.is_small and sent.left == 0
            sends = bool(self._gathered) and not self._sending
            self._sending = self._sending or sends
        if sends:
            self._send_all()
        for future, answer in settled:
            _settle(future, answer, message.era)
        if settled:
            self._answered(len(settled), freed)

    def _close(self) -> None:
        """Raises the error with which the server ended the stream, if there was one."""
        with self._lock:
            self._ending = True
            self._sent.wait_for(lambda: not self._sending)
        self._stream.close()

    # ---- ending ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Takes nothing more; what was taken is sent, and answers still come."""
        with self._lock:
            self._ending = True
        self._half_close()

    def _half_close(self) -> None:
        """Tells the server that nothing more comes, once that is so."""
        with self._lock:
            if not self._ending or self._sending or self._gathered or self._half_closed or self._ended is not None:
                return
            self._half_closed = True
        self._done_writing()

    def _done_writing(self) -> None:
        try:
            self._stream.done_writing()
        except TailraceError as error:
            self.break_off(error)

    def join(self, timeout_s: float) -> bool:
        """Waits until the server has ended the stream."""
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def break_off(self, error: TailraceError) -> None:
        """Fails whatever is unanswered; later calls do nothing."""
        with self._lock:
            if self._ended is not None:
                return
            error = self._ended = self.verdict or error
            unsent, self._gathered = list(self._gathered), deque()
            waiting, self._waiting = list(self._waiting.values()), {}
        if waiting:
            size = sum(size for _, size, _ in waiting)
            self._fail([future for future, _, _ in waiting], size, _of_unknown_outcome(error))
        for outgoing in unsent:
            self._fail(outgoing.futures, outgoing.size_bytes, error)

    def _fail(self, futures: Sequence[Waiting], size_bytes: int, error: TailraceError) -> None:
        for future in futures:
            future.set_exception(error)
        self._answered(len(futures), size_bytes)


def _settle(future: Waiting, answer: Answer, era: int) -> None:
    if answer.error is None:
        future.set_result(WriteResult(answer.first, answer.last, Position(era, answer.last)))
    else:
        future.set_exception(TailraceError.rebuild(answer.error, answer.fields or {}))


def _translated(error: BaseException, address: str) -> TailraceError:
    if isinstance(error, TailraceError):
        return error
    return Disconnected(address=address, reason=f"the client failed: {type(error).__name__}: {error}")


def _of_unknown_outcome(error: TailraceError) -> TailraceError:
    if isinstance(error, _SAYS_WHY):
        return error
    address = error.fields.get("address", "the store")
    reason = (
        f"{error.fields.get('reason', error)}; the write was sent and not answered: it may or may not have been made"
    )
    return Disconnected(address=address, reason=reason)
