"""One session: one stream from one publisher, read and handed to the application until something ends it.

`run` reads in the calling thread and calls the application in it, so that a slow application is felt by gRPC's flow
control and by nothing else; `Pulse` speaks for it meanwhile, over a connection of its own that no batch can hold up.
`run` never returns: it raises why the session ended, and the subscription decides what that means.

What happens to a batch, in this order: rows seen before are dropped, the application processes the rest, updates that
it gave up on are buried (fsynced at the publisher), progress moves. A token behind it is acknowledged only after that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import pyarrow as pa

from tailrace.errors import (
    AcknowledgementRefused,
    Disconnected,
    Fenced,
    MarkersNotSaved,
    ProtocolMismatch,
    TailraceError,
)
from tailrace.runtime.clock import Clock
from tailrace.subscriber.application import Application, Token
from tailrace.subscriber.delivery import DeadUpdate, Delivery
from tailrace.subscriber.lease import Lease
from tailrace.subscriber.ledger import Ledger
from tailrace.subscriber.pulse import Pulse
from tailrace.subscriber.seen import Seen
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import Checkpoint, Position
from tailrace.updates.schema import UPDATE_SCHEMA
from tailrace.wire import messages
from tailrace.wire.client import Connection, StreamReader

logger: Final = logging.getLogger(__name__)

ACKNOWLEDGE_TIMEOUT_S: Final = 30.0  # it waits for an fsync at the publisher
FAREWELL_TIMEOUT_S: Final = 3.0


class SubscriptionEnded(TailraceError):
    """The publisher ended the subscription for good."""

    template = "the publisher ended the subscription: {reason}"


class Session:
    """See the module. `acknowledge*` may be called from any thread, everything else from the one that runs it."""

    def __init__(
        self,
        *,
        control: Connection,
        reader: StreamReader,
        lease: Lease,
        clock: Clock,
        application: Application,
        ledger: Ledger,
        delivery: Delivery,
    ) -> None:
        self._control = control
        self._reader = reader
        self._clock = clock
        self._application = application
        self._ledger = ledger
        self._delivery = delivery
        self._seen = Seen()
        self._opened: messages.Opened | None = None
        self._pulse = Pulse(lease, clock, self._alive, reader.cancel)
        self.lease = lease
        self.through: Position | None = None
        self.settled = False  # something came after `Opened`: this publisher is of use
        self._repeats_until: Position | None = None  # what came in an earlier session comes again up to here
        self._handlers: dict[type, Callable[[Any, Any], None]] = {
            messages.Updates: self._on_updates,
            messages.Heartbeat: self._on_heartbeat,
            messages.Token: self._on_token,
            messages.Opened: self._on_opened,
            messages.DataLoss: self._on_data_loss,
            messages.Revoked: self._on_revoked,
            messages.Redelivery: self._on_redelivery,
            messages.Goodbye: self._on_goodbye,
        }

    @property
    def name(self) -> str:
        """As the publisher calls it; empty until `Opened`."""
        return self._opened.session if self._opened else ""

    def end(self, reason: BaseException) -> None:
        """From any thread: calls the application no more, and makes `run` raise `reason`."""
        self.lease.end(reason)
        self._reader.cancel()

    def run(self) -> None:
        """Until the session ends; always raises why."""
        self._pulse.start()
        try:
            self._require_schema()
            self._read()
        except Disconnected:
            if self.lease.over:  # the stream was cancelled on purpose
                raise self.lease.reason() from None
            raise
        finally:
            self._pulse.stop()
            self._reader.close()

    def _read(self) -> None:
        reader, pulse, clock, handlers = self._reader, self._pulse, self._clock, self._handlers
        while True:
            pulse.waiting_since = clock.monotonic()
            try:
                batch, metadata = next(reader)
            except StopIteration:
                raise Disconnected(address=self._control.address, reason="the stream ended without a goodbye") from None
            finally:
                pulse.waiting_since = None
            self.lease.check()
            message = messages.decode_down(metadata)
            handlers[type(message)](message, batch)

    def _require_schema(self) -> None:
        schema = self._reader.schema
        for field in UPDATE_SCHEMA:
            at = schema.get_field_index(field.name)
            if at < 0 or schema.field(at).type != field.type:
                raise ProtocolMismatch(reason=f"{self._control.address} sends updates without a column {field}")

    # ---- what comes down --------------------------------------------------------------------------------------------

    def _on_opened(self, message: messages.Opened, _: pa.RecordBatch) -> None:
        before = self._ledger.progress
        change = self._ledger.opened(message)
        self._opened = message
        self.lease.opened(message.lease_s)
        self._pulse.opened()
        if not message.standby:
            self.through = message.after
            known = (before if self._ledger.progress == before else None, message.sent_before)
            self._repeats_until = max((place for place in known if place is not None), default=None)
        self._revoke(change.gone)
        for shard in change.gained:
            self._delivery.call(partial(self._application.on_shard_notice, shard), f"the notice of shard {shard}")

    def _on_updates(self, message: messages.Updates, batch: pa.RecordBatch) -> None:
        opened = self._receiving()
        data = self._seen.fresh(batch)
        if data.num_rows:
            updates = UpdateBatch(data, message.line, opened.epoch, message.through)
            if self._repeats_until is not None:
                updates = self._marked_if_repeated(updates, self._repeats_until)
            dead = self._delivery.deliver(updates)
            if dead:
                self._bury(dead)
        self._processed(data.num_rows, message.through)

    def _marked_if_repeated(self, updates: UpdateBatch, until: Position) -> UpdateBatch:
        if updates.first <= until:
            return replace(updates, redelivered=True)
        self._repeats_until = None
        return updates

    def _on_heartbeat(self, message: messages.Heartbeat, _: pa.RecordBatch) -> None:
        self.settled = True
        if self._opened is not None and not self._opened.standby:
            self._processed(0, message.through)

    def _on_token(self, message: messages.Token, _: pa.RecordBatch) -> None:
        token = self._token(message)
        answer = self._delivery.call(lambda: self._application.on_token(token), f"token {token.number}")
        if answer is not False:
            self._acknowledge(message.token)

    def _on_data_loss(self, message: messages.DataLoss, _: pa.RecordBatch) -> None:
        self._receiving()
        logger.warning("updates in (%s, %s] are lost: %s", message.after, message.until, message.reason)
        for shard in message.shards:
            notice = partial(self._application.on_data_loss, shard, message.after, message.until, message.reason)
            self._delivery.call(notice, f"the loss notice of shard {shard}")
        self._seen.forget(message.shards)  # another history may begin again at positions that this one had
        self._acknowledge(message.token)

    def _on_revoked(self, message: messages.Revoked, _: pa.RecordBatch) -> None:
        self._receiving()
        self._ledger.revoked(message.shards)
        self._seen.forget(message.shards)
        self._revoke(message.shards)
        self._acknowledge(message.token)

    def _revoke(self, shards: list[int]) -> None:
        for shard in shards:
            self._delivery.call(partial(self._application.on_shard_revoked, shard), f"the revocation of shard {shard}")

    def _on_redelivery(self, message: messages.Redelivery, batch: pa.RecordBatch) -> None:
        opened = self._receiving()
        if batch.num_rows != len(message.letters):
            raise ProtocolMismatch(reason=f"{batch.num_rows} dead letters came with {len(message.letters)} numbers")
        through = self.through or opened.after
        updates = UpdateBatch(batch, opened.line, opened.epoch, through, redelivered=True)
        failed = self._delivery.redeliver(updates)
        done = [letter for row, letter in enumerate(message.letters) if row not in failed]
        answer = messages.DeadDone(
            session=opened.session,
            done=done,
            failed={message.letters[row]: error for row, error in failed.items()},
        )
        self._send(answer)

    def _on_goodbye(self, message: messages.Goodbye, _: pa.RecordBatch) -> None:
        if message.retry:
            raise Disconnected(address=self._control.address, reason=f"the publisher said goodbye: {message.reason}")
        raise SubscriptionEnded(reason=message.reason)

    # ---- what goes up -----------------------------------------------------------------------------------------------

    def acknowledge(self, token: Token) -> None:
        if token.session != self.name:
            raise AcknowledgementRefused(
                token=f"token {token.number}", reason=f"it is of session {token.session}, which is over"
            )
        self._send_acknowledgement(token.number, None)

    def acknowledge_through(self, position: Position) -> None:
        if self.through is None or position > self.through:
            raise AcknowledgementRefused(
                token=f"position {position}", reason=f"this session has processed updates up to {self.through} only"
            )
        self._send_acknowledgement(0, Checkpoint(position, None))

    def farewell(self, *, last_token: bool) -> None:
        """After `run`: gives the flows up, and before that acknowledges what was processed if the application agrees.

        It is asked with a token of number 0 for everything that it processed, so that one which keeps what it got in
        memory can make it safe, or decline.
        """
        opened = self._opened
        if opened is None or self.lease.lapsed:
            return
        if last_token and not opened.standby and self.through is not None and self.through > opened.after:
            shards = tuple(opened.shards)
            token = Token(0, opened.session, opened.line, shards, self.through)
            if self._application.on_token(token) is not False:
                place = Checkpoint(self.through, None)
                self._send(messages.Acknowledge(opened.session, opened.epoch, 0, place), FAREWELL_TIMEOUT_S)
        self._send(messages.Leave(opened.session), FAREWELL_TIMEOUT_S)

    def _acknowledge(self, token: int) -> None:
        try:
            self._send_acknowledgement(token, None)
        except MarkersNotSaved as error:
            logger.warning("delivery goes on, and the next token moves the markers: %s", error)

    def _send_acknowledgement(self, token: int, checkpoint: Checkpoint | None) -> None:
        opened = self._receiving()
        self.lease.check()
        self._send(messages.Acknowledge(opened.session, opened.epoch, token, checkpoint))

    def _bury(self, dead: list[DeadUpdate]) -> None:
        """Letters of equal attempts go together: a message has one number for all of its letters."""
        opened = self._receiving()
        for attempts in sorted({each.attempts for each in dead}):
            letters = [each for each in dead if each.attempts == attempts]
            rows = cast(Any, pa).concat_batches([each.data for each in letters])
            self._send(messages.BuryDead(opened.session, as_stream(rows), [each.error for each in letters], attempts))

    def _send(self, message: messages.Message, timeout_s: float = ACKNOWLEDGE_TIMEOUT_S) -> None:
        """What the publisher makes durable before it answers; its answer is a sign of life as well."""
        sent_at = self._clock.monotonic()
        try:
            self._control.call(message, messages.decode_reply, timeout_s)
        except Fenced as error:
            self.lease.end(error)
            raise
        self.lease.renew(sent_at)

    def _alive(self, progress: Position | None, timeout_s: float) -> None:
        self._control.call(messages.Alive(self.name, progress), messages.decode_reply, timeout_s)

    # ---- what both need ---------------------------------------------------------------------------------------------

    def _receiving(self) -> messages.Opened:
        if self._opened is None or self._opened.standby:
            raise ProtocolMismatch(reason="updates came on a stream that was not opened for them")
        return self._opened

    def _processed(self, updates: int, through: Position) -> None:
        self.settled = True
        self.through = through
        self._ledger.delivered(updates, through)
        self._pulse.moved(through)

    def _token(self, message: messages.Token) -> Token:
        opened = self._receiving()
        place = message.checkpoint.position
        return Token(message.token, opened.session, message.line, tuple(message.shards), place)


def as_stream(rows: pa.RecordBatch) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()
