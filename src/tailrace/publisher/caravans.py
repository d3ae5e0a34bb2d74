"""All caravans of one dataset: who rides where, and when a new one sets out.

In steady state there is one. A stream boards the caravan furthest ahead whose window holds its place; where none
does, a new one sets out from there for it alone, and streams that come to the same place board that. On every round a
stream looks whether it has caught up with the lead, boards it, and the caravan that it left ends when nobody rides it.
A caravan is only ever started by a stream that asks for its next batch, so that stopped subscribers cost no reader.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.errors import LogDiverged, LogTruncated, TailraceError
from tailrace.publisher.caravan import Caravan, Patience, Rider, ahead
from tailrace.publisher.resume import NO_ERAS, Loss, OnFork, resume
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.clock import Clock
from tailrace.sources.interface import Source
from tailrace.updates.position import Marker, Position

if TYPE_CHECKING:
    from tailrace.publisher.stream import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Boarding:
    """A place in a caravan. `position` is set where the stream must go on from elsewhere, having lost `losses`."""

    caravan: Caravan
    rider: Rider
    position: Position | None = None
    losses: tuple[Loss, ...] = ()


class Caravans:
    """Safe to use from many threads; a short lock guards the list, and is never held while a log is read.

    Another one is held by whoever sets out, so that twenty streams which come to one place together start one caravan.
    Looking a place up may take long: who finds it held for a while goes on with heartbeats and comes back.
    """

    def __init__(
        self,
        source: Source,
        settings: PublisherSettings,
        clock: Clock,
        on_fork: OnFork | None = None,
        delivered: Mapping[int, Position] = NO_ERAS,
    ) -> None:
        self._source = source
        self._on_fork = on_fork
        self._delivered = delivered
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._setting_out = threading.Lock()
        self._numbers = itertools.count(1)
        self._running: list[Caravan] = []
        self._failures: dict[Position, tuple[float, str]] = {}  # where reading failed: when to try again, and why
        self._parted_at: Position | None = None
        self._error: TailraceError | None = None
        self._retry_at = 0.0
        self._closed = False
        self._ended_log_bytes = 0

    def board(self, stream: Stream) -> Boarding | None:
        """A place for this stream; None when it has to wait, and `stream.blocked_by` says for what."""
        found = self._aboard(stream)
        if found is not None:
            return found
        if not self._setting_out.acquire(timeout=self._settings.heartbeat_s / 4):
            stream.blocked_by = "another stream's place is being looked up in the log"
            return None
        try:
            return self._aboard(stream) or self._set_out(stream)
        finally:
            self._setting_out.release()

    def _aboard(self, stream: Stream) -> Boarding | None:
        for caravan in ahead(self._snapshot()):
            rider = caravan.board(stream.application, stream.sent, filter=stream.filter, near=stream.moved_off)
            if rider:
                stream.blocked_by = ""
                return Boarding(caravan, rider)
        return None

    def further(self, stream: Stream, riding: Caravan) -> Boarding | None:
        """A place in the lead caravan, for a stream on another one that has come near it."""
        if len(self._running) < 2:
            return None
        lead = ahead(self._snapshot())[0]
        if lead is riding or lead.through < riding.through:
            return None
        rider = lead.board(stream.application, stream.sent, filter=stream.filter, near=True)
        return Boarding(lead, rider) if rider else None

    def _set_out(self, stream: Stream) -> Boarding | None:
        retry_at, reason = self._failures.get(stream.sent, (0.0, ""))
        if self._clock.monotonic() < retry_at:
            stream.blocked_by = reason
            return None
        if len(self._running) >= self._settings.max_caravans:
            stream.blocked_by = f"{self._settings.max_caravans} caravans are on their way (max_caravans)"
            return None
        try:
            here = dict.fromkeys(stream.shards, Marker(stream.read))
            start = resume(self._source, here, self._on_fork, self._delivered)
        except TailraceError as error:
            self._fail(stream.sent, error)
            stream.blocked_by = str(error)
            return None
        caravan = Caravan(
            f"{self._source.line}-{next(self._numbers)}",
            self._source,
            start.position,
            window_bytes=self._settings.window_bytes,
            batch_bytes=self._settings.batch_bytes,
            patience=Patience(self._settings.patience_s, self._settings.slowness_s),
            clock=self._clock,
            on_ended=self._ended,
        )
        rider = caravan.board(stream.application, start.position, filter=stream.filter)
        assert rider is not None, "a caravan that has not set out has room"
        with self._lock:
            if self._closed:
                return None
            self._running.append(caravan)
        caravan.start()
        stream.blocked_by = ""
        moved = start.position if start.losses else None
        return Boarding(caravan, rider, moved, start.losses)

    def _ended(self, caravan: Caravan) -> None:
        with self._lock:
            self._running.remove(caravan)
            self._ended_log_bytes += caravan.log_bytes
        error = caravan.error
        if isinstance(error, LogTruncated | LogDiverged) and self._parted_at != caravan.through:
            self._parted_at = caravan.through
            return  # the riders find out what they lost when they board again
        if isinstance(error, TailraceError):
            self._fail(caravan.through, error)
        elif error is not None:
            self._fail(caravan.through, TailraceError(reason=f"{type(error).__name__}: {error}"))

    def _fail(self, at: Position, error: TailraceError) -> None:
        """Who stands there waits; streams that stand elsewhere may find the log readable."""
        now = self._clock.monotonic()
        retry_at = now + self._settings.retry_failed_source_s
        with self._lock:
            self._failures = {place: held for place, held in self._failures.items() if held[0] > now}
            self._failures[at] = (retry_at, str(error))
        self._error, self._retry_at = error, retry_at
        log.error("the log of %s cannot be read on: %s", self._source.line, error)

    def _snapshot(self) -> list[Caravan]:
        with self._lock:
            return list(self._running)

    # ---- what others may know ---------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._running)

    @property
    def error(self) -> str:
        """Why the log cannot be read on, empty once it can."""
        if self._error and self._clock.monotonic() > self._retry_at + 2 * self._settings.retry_failed_source_s:
            self._error = None
        return str(self._error) if self._error else ""

    @property
    def log_bytes(self) -> int:
        return self._ended_log_bytes + sum(caravan.log_bytes for caravan in self._snapshot())

    @property
    def window_used_bytes(self) -> int:
        return sum(caravan.window_used_bytes for caravan in self._snapshot())

    def is_lead(self, name: str) -> bool:
        running = ahead(self._snapshot())
        return bool(running) and running[0].name == name

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
        for caravan in running:
            caravan.end()
