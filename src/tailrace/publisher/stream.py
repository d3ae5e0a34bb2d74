"""A stream: what one subscriber's connection carries, in the order in which it must arrive.

`messages` is the generator behind the subscriber's `DoGet`. It takes entries from the caravan that the stream rides,
slices and filters them, and puts tokens, loss notices, redeliveries and heartbeats between them. Each message names the
place up to which the log has been read, so that a flow whose filter matched nothing still moves on. gRPC asks the
generator for the next message only when the last one is on its way, which is all the flow control that there is: a
subscriber that stops reading stops its generator, and its caravan goes on without it.

Only the generator's thread moves `sent`. What other threads want of a stream (a redelivery, its end) goes through
`post` and `end`, and wakes the generator.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tailrace.errors import AcknowledgementRefused
from tailrace.publisher.caravan import Caravan, Entry, Rider
from tailrace.publisher.resume import Loss, Resumption, after, without
from tailrace.publisher.sent import OpenToken, OpenTokens, Trail
from tailrace.runtime.clock import Clock
from tailrace.runtime.metrics import Rate
from tailrace.updates.filters import Filter
from tailrace.updates.position import Checkpoint, Position
from tailrace.updates.schema import EMPTY_UPDATES, concat_updates
from tailrace.wire.messages import DataLoss, Down, Goodbye, Heartbeat, Opened, Redelivery, Token, Updates

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tailrace.publisher.caravans import Boarding, Caravans
    from tailrace.publisher.settings import PublisherSettings

Parcel = tuple[pa.RecordBatch, Down]

REMEMBERED_COMMITS: Final = 1024  # batches whose commit time is kept until they are processed


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters to hand to the application again."""

    numbers: tuple[int, ...]
    updates: pa.RecordBatch


class Stream:
    """One session of one subscriber of one application."""

    def __init__(
        self,
        *,
        session: str,
        application: str,
        subscriber: str,
        epoch: int,
        line: str,
        shards: tuple[int, ...],
        filter: Filter | None,
        caravans: Caravans,
        settings: PublisherSettings,
        clock: Clock,
    ) -> None:
        self.session = session
        self.application = application
        self.subscriber = subscriber
        self.epoch = epoch
        self.line = line
        self.shards = shards
        self.filter = filter
        self.sent = Position(0, 0, 0)
        self.progress: Position | None = None
        self.updates_rate = Rate(clock)
        self.bytes_rate = Rate(clock)
        self.blocked_by = ""
        self.moved_off = False
        self.standby = True
        self._caravans = caravans
        self._settings = settings
        self._clock = clock
        self._caravan: Caravan | None = None
        self._rider: Rider | None = None
        self._ended: Goodbye | None = None
        self._last_words = self._returned = False
        self._posted: deque[Iterator[Letters]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._opening: Resumption | None = None
        self._sent_before: Position | None = None
        self._already: Mapping[int, Position] = {}
        self._tokens = OpenTokens(settings.max_open_tokens)
        self._trail = Trail()
        self._committed: deque[tuple[Position, int]] = deque(maxlen=REMEMBERED_COMMITS)
        self._read = Checkpoint(self.sent, None)
        self._tokened = self.sent
        self._token_due_at = clock.monotonic() + settings.marker_interval_s
        self._bytes_since_token = 0
        self._last_message_at = clock.monotonic()

    # ---- what other threads do to a stream --------------------------------------------------------------------------

    def open(self, start: Resumption, sent_before: Position | None = None) -> None:
        """Gives the stream its flows; until then it stands by. `sent_before`: how far an earlier session got."""
        with self._changed:
            self._opening = start
            self._sent_before = sent_before
            self.standby = False
            self._changed.notify_all()

    def post(self, letters: Iterator[Letters]) -> None:
        """Letters to send; each batch is loaded when its turn comes."""
        with self._changed:
            self._posted.append(letters)
        self._wake()

    def end(self, reason: str, *, retry: bool = True, last_token: bool = False) -> None:
        """The generator says goodbye and returns, as soon as it comes round.

        It may never do so, where its subscriber stopped reading: its caravan does not wait for it. With `last_token`, a
        token for all that was sent comes before the goodbye.
        """
        with self._changed:
            self._ended = self._ended or Goodbye(reason=reason, retry=retry)
            self._last_words = last_token
        self._leave()
        self._wake()

    def wait_settled(self, timeout_s: float) -> bool:
        """Waits until the generator of a stream that was ended has returned, and its newest token is acknowledged."""
        with self._changed:
            return self._changed.wait_for(lambda: self._returned and self._tokens.newest_is_closed, timeout_s)

    @property
    def ended(self) -> bool:
        return self._ended is not None

    @property
    def read(self) -> Checkpoint:
        """Up to where the log was read for this stream, with its witness."""
        return self._read

    @property
    def queued_bytes(self) -> int:
        """What its caravan has read and this stream has not taken yet."""
        caravan, rider = self._caravan, self._rider
        return caravan.behind_bytes(rider) if caravan and rider else 0

    def unprocessed_since_us(self, processed: Position) -> int | None:
        """When the oldest batch was committed that was sent and lies past `processed`; None if there is none."""
        with self._changed:
            while self._committed and self._committed[0][0] <= processed:
                self._committed.popleft()
            return self._committed[0][1] if self._committed else None

    @property
    def open_tokens(self) -> int:
        """Tokens and notices that were sent and await their acknowledgement."""
        return len(self._tokens)

    @property
    def riding(self) -> str:
        """The caravan that the stream rides, empty if none."""
        caravan = self._caravan
        return caravan.name if caravan else ""

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
        caravan = self._caravan
        if caravan:
            caravan.wake()

    def open_token(self, token: int) -> OpenToken:
        """The token that is being acknowledged; it stays open until its markers are durable."""
        with self._changed:
            found = self._tokens.get(token)
        if found is None:
            raise AcknowledgementRefused(
                token=f"token {token} of application {self.application!r}",
                reason="no such token was sent in this session, or it was acknowledged already",
            )
        return found

    def close_token(self, token: int) -> bool:
        """Its markers are durable; tokens sent before it stay open, as each names its own shards. True for a loss."""
        with self._changed:
            closed = self._tokens.close(token)
            self._changed.notify_all()
            return closed is not None and closed.loss is not None

    def checkpoint_at(self, position: Position) -> Checkpoint | None:
        """A place at or before `position` that a marker can stand at; None if that is before this session."""
        if position > self.sent:
            raise AcknowledgementRefused(
                token=f"position {position} of application {self.application!r}",
                reason=f"this session was sent updates up to {self.sent} only",
            )
        with self._changed:
            return self._trail.before(position)

    # ---- the generator ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Parcel]:
        """Everything that goes down this stream, in order, until it ends."""
        try:
            yield from self._stand_by()
            while self._ended is None:
                yield from self._letters()
                for parcel in self._updates():
                    self._last_message_at = self._clock.monotonic()
                    yield parcel
            if self._last_words:
                yield from self._token_for_the_rest()
            yield EMPTY_UPDATES, self._ended
        finally:
            self._step_off()
            with self._changed:
                self._returned = True
                self._changed.notify_all()

    def _stand_by(self) -> Iterator[Parcel]:
        if self.standby:
            yield EMPTY_UPDATES, self._opened(standby=True)
        while self._ended is None:
            with self._changed:
                if self._opening is None and self._ended is None:
                    self._changed.wait(self._settings.heartbeat_s)
                start = self._opening
            if start is not None:
                self._already = start.already
                self._go_on_at(start.position)
                yield EMPTY_UPDATES, self._opened(standby=False)
                yield from map(self._loss_notice, start.losses)
                return
            yield EMPTY_UPDATES, Heartbeat(line=self.line, through=self.sent)

    def _opened(self, *, standby: bool) -> Opened:
        return Opened(
            session=self.session,
            epoch=self.epoch,
            shards=[] if standby else list(self.shards),
            lease_s=self._settings.lease_s,
            line=self.line,
            after=self.sent,
            standby=standby,
            sent_before=self._sent_before,
        )

    def _letters(self) -> Iterator[Parcel]:
        """One batch of letters a round, so that many of them do not hold up updates."""
        while self._posted:
            letters = next(self._posted[0], None)
            if letters is not None:
                yield letters.updates, Redelivery(letters=list(letters.numbers))
                return
            self._posted.popleft()

    def _updates(self) -> Iterator[Parcel]:
        """One round: what the caravan has next, then a token or a heartbeat if one is due."""
        entries, elsewhere = self._take()
        if elsewhere is not None and elsewhere.position is not None:
            yield from self._token_for_the_rest()
            self._already = {}
            self._go_on_at(elsewhere.position)
            yield from map(self._loss_notice, elsewhere.losses)
        for run in runs(entries):
            lost = run[0].batch.loss
            if lost is not None and lost.until > self.sent:
                yield from self._token_for_the_rest()
                yield self._loss_notice(
                    Loss(self.shards, lost.after, lost.until, lost.reason, Checkpoint(lost.until, None))
                )
            updates = self._selected(run)
            self._advance(run[-1], updates)
            if updates.num_rows:
                yield updates, Updates(line=self.line, through=self.sent)
        now = self._clock.monotonic()
        if self._token_is_due(now):
            yield self._token(now)
        elif now - self._last_message_at >= self._settings.heartbeat_s:
            yield EMPTY_UPDATES, Heartbeat(line=self.line, through=self.sent)

    def _go_on_at(self, position: Position) -> None:
        self.sent = self._tokened = position
        self._read = Checkpoint(position, None)
        with self._changed:
            self._trail = Trail()

    def _token_for_the_rest(self) -> Iterator[Parcel]:
        """For what was sent since the last one: before a loss, so that acknowledging that skips nothing else."""
        if self.sent > self._tokened:
            yield self._token(self._clock.monotonic())

    # ---- riding -----------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[list[Entry], Boarding | None]:
        """The next entries, boarding a caravan first if need be; the boarding, if the log goes on elsewhere."""
        if self._rider is not None and self._caravan is not None:
            self._board_the_lead(self._caravan)
        else:
            boarding = self._caravans.board(self)
            if boarding is None:
                with self._changed:
                    if self._ended is None:
                        self._changed.wait(self._settings.heartbeat_s / 4)
                return [], None
            self._caravan, self._rider = boarding.caravan, boarding.rider
            if boarding.position is not None and self._ended is None:
                return [], boarding
        assert self._caravan is not None
        assert self._rider is not None
        if self._ended is not None:  # while it boarded
            self._step_off()
            return [], None
        entries = self._caravan.take(self._rider, self._patience_s(), self._settings.batch_bytes)
        if not self._rider.aboard:
            self.moved_off = not entries
            self._step_off()
        return entries, None

    def _patience_s(self) -> float:
        if self._posted:
            return 0.0
        if self.sent <= self._tokened:
            return self._settings.heartbeat_s
        return max(0.01, min(self._settings.heartbeat_s, self._token_due_at - self._clock.monotonic()))

    def _board_the_lead(self, caravan: Caravan) -> None:
        """A stream that caught up with the caravan furthest ahead goes on there, and its old one may end."""
        further = self._caravans.further(self, caravan)
        if further:
            self._step_off()
            self._caravan, self._rider = further.caravan, further.rider

    def _step_off(self) -> None:
        self._leave()
        self._caravan = self._rider = None

    def _leave(self) -> None:
        caravan, rider = self._caravan, self._rider
        if caravan and rider:
            caravan.leave(rider)

    def _selected(self, entries: list[Entry]) -> pa.RecordBatch:
        batches = []
        for entry in entries:
            updates = entry.select(self.filter)
            if entry.after < self.sent:
                updates = after(updates, self.sent)
            if updates.num_rows and self._already and entry.after < max(self._already.values()):
                updates = without(updates, self._already)
            if updates.num_rows:
                batches.append(updates)
        return concat_updates(batches)

    def _advance(self, last: Entry, updates: pa.RecordBatch) -> None:
        self.sent = last.through
        self._read = last.batch.checkpoint
        with self._changed:
            self._trail.add(self._read)
        if updates.num_rows:
            size = last.bytes_of(updates)
            self.updates_rate.add(updates.num_rows)
            self.bytes_rate.add(size)
            self._bytes_since_token += size
            committed = updates.column("committed_at")
            if committed[0].is_valid:
                with self._changed:
                    self._committed.append((self.sent, committed[0].value))

    # ---- tokens -----------------------------------------------------------------------------------------------------

    def _token_is_due(self, now: float) -> bool:
        if self.sent <= self._tokened:
            return False
        return now >= self._token_due_at or self._bytes_since_token >= self._settings.marker_interval_bytes

    def _token(self, now: float) -> Parcel:
        self._token_due_at = now + self._settings.marker_interval_s
        self._bytes_since_token = 0
        self._tokened = self.sent
        number = self._remember(OpenToken(self.shards, self._read))
        return EMPTY_UPDATES, Token(token=number, line=self.line, shards=list(self.shards), checkpoint=self._read)

    def _loss_notice(self, loss: Loss) -> Parcel:
        number = self._remember(OpenToken(loss.shards, loss.resume, loss))
        log.warning("%s is told that (%s, %s] is lost: %s", self.application, loss.after, loss.until, loss.reason)
        return EMPTY_UPDATES, DataLoss(
            token=number,
            line=self.line,
            shards=list(loss.shards),
            after=loss.after,
            until=loss.until,
            reason=loss.reason,
        )

    def _remember(self, token: OpenToken) -> int:
        with self._changed:
            number = self._tokens.add(token)
            if self._tokens.too_many:
                reason = f"{len(self._tokens)} loss notices are not acknowledged (max_open_tokens)"
                self._ended = self._ended or Goodbye(reason=reason, retry=True)
            return number


def runs(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Entries in log order, a new run wherever something was lost right before one."""
    start = 0
    for at, entry in enumerate(entries):
        if at > start and entry.batch.loss is not None:
            yield entries[start:at]
            start = at
    if entries:
        yield entries[start:]
