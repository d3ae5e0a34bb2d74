"""The publisher of one dataset: gives applications their flows and keeps their markers.

Subscribers' calls (`subscribe`, `acknowledge`, `alive`, ...) come on many threads; each application has a lock over who
has its flows, and a janitor calls `tick` a few times a second to release flows whose subscriber fell silent and to give
them to the next in line. What must be durable is so before a call returns: a marker is fsynced before the
acknowledgement is answered, a dead letter before it counts as done. While one application's fsync is held up, its signs
of life and all other applications go on: `alive` takes no lock, and the janitor passes over a lock that is taken. If
markers cannot be saved, they stand still and delivery goes on.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping

from tailrace.errors import (
    AcknowledgementRefused,
    Fenced,
    LogDiverged,
    LogError,
    MarkersNotSaved,
    TailraceError,
    Unavailable,
)
from tailrace.publisher.ages import Ages
from tailrace.publisher.applications import (
    Application,
    Session,
    next_in_line,
    next_step,
)
from tailrace.publisher.caravans import Caravans
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.records import ApplicationRecords
from tailrace.publisher.resume import NO_ERAS, Resumption, in_era, resume
from tailrace.publisher.roster import Roster
from tailrace.publisher.sent import OpenToken
from tailrace.publisher.settings import PublisherSettings
from tailrace.publisher.stream import Stream
from tailrace.runtime.clock import Clock, Deadline
from tailrace.sources.interface import Bounds, Source
from tailrace.updates.filters import Filter
from tailrace.updates.position import START, Marker, Position
from tailrace.wire.messages import Acknowledge, Alive, Leave, Subscribe

log = logging.getLogger(__name__)


ForkFound = Callable[[LogDiverged, Position], None]  # with how far the era was delivered


class DatasetPublisher:
    """See the module."""

    def __init__(
        self,
        dataset: str,
        shards: int,
        source: Source,
        *,
        epoch: int,
        records: ApplicationRecords,
        markers: MarkerStore,
        dead: DeadLetters,
        settings: PublisherSettings,
        clock: Clock,
        on_fork: ForkFound | None = None,
        delivered: Mapping[int, Position] = NO_ERAS,
    ) -> None:
        self.dataset = dataset
        self.shards = tuple(range(shards))
        self.source = source
        self.epoch = markers.own(dataset, epoch)
        self.dead = dead
        self.ages = Ages(source)
        self._fork_found = on_fork
        self._on_fork = self._forked if on_fork else None
        self._delivered = delivered
        self.caravans = Caravans(source, settings, clock, self._on_fork, delivered)
        self._roster = Roster(dataset, self.shards, source, records, markers, dead, settings)
        self._markers = markers
        self._settings = settings
        self._clock = clock
        self._began = clock.monotonic()
        self._lock = threading.RLock()
        self._sessions: dict[str, Session] = {}
        self._draining = self._closed = False
        self.last_bounds = Bounds(START, START)

    # ---- subscribers come and go ------------------------------------------------------------------------------------

    def subscribe(self, ask: Subscribe) -> Stream:
        """A stream for this subscriber; it stands by while another one has the flows."""
        application = self._roster.visited(ask)
        with application.lock:
            if len(application.standbys) >= self._settings.max_standbys:
                raise Unavailable(
                    reason=f"application {ask.application!r} has {len(application.standbys)} subscribers standing by "
                    f"already (max_standbys)"
                )
            session = self._session(application, ask.subscriber)
            with self._lock:
                if self._draining:
                    raise Unavailable(reason="the publisher is shutting down")
                self._sessions[session.stream.session] = session
            self._supersede(application, ask.subscriber)
            application.standbys.append(session)
            self._settle(application)
            return session.stream

    def declare(self, ask: Subscribe) -> None:
        """Makes the record of a configured application before its first subscriber comes; refuses one that differs."""
        self._roster.declared(ask)

    def _session(self, application: Application, subscriber: str) -> Session:
        filter = application.record.filter
        stream = Stream(
            session=secrets.token_hex(8),
            application=application.name,
            subscriber=subscriber,
            epoch=self.epoch,
            line=self.source.line,
            shards=self.shards,
            filter=Filter.parse(filter) if filter else None,
            caravans=self.caravans,
            settings=self._settings,
            clock=self._clock,
        )
        return Session(stream, self._clock.monotonic())

    def _supersede(self, application: Application, subscriber: str) -> None:
        for session in application.sessions():
            if session.stream.subscriber == subscriber:
                session.left = True
                self._end(application, session, "this subscriber opened a new session")

    def disconnected(self, stream: Stream) -> None:
        """The stream's generator returned: its connection broke, or it was told to end."""
        session = self._sessions.get(stream.session)
        if session is None:
            return
        application = self._roster.get(stream.application)
        with application.lock:
            session.connected = False
            if session in application.standbys:
                self._end(application, session, "the connection broke")
            self._settle(application)

    def leave(self, ask: Leave) -> None:
        session = self._sessions.get(ask.session)
        if session is None:
            return
        application = self._roster.get(session.stream.application)
        with application.lock:
            session.left = True
            if session in application.standbys:
                self._end(application, session, "the subscriber left")
            self._settle(application)

    def alive(self, ask: Alive) -> None:
        """A sign of life; refused once the session is over, so that a fenced subscriber learns of it."""
        session = self._session_of(ask.session)
        session.heard_at = self._clock.monotonic()
        if ask.progress is not None:
            application = self._roster.get(session.stream.application)
            session.stream.progress = ask.progress
            if application.active is session:
                application.progress = max(application.progress or ask.progress, ask.progress)

    def _session_of(self, session: str) -> Session:
        found = self._sessions.get(session)
        if found is None or self._closed:
            raise Fenced(what=f"session {session}", reason="it is over; its flows may be elsewhere by now")
        return found

    # ---- who has the flows ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Looks after every application; called by the janitor a few times a second."""
        for application in self.applications():
            if application.lock.acquire(blocking=False):
                try:
                    self._settle(application)
                except Exception as error:  # the other applications' leases run all the same
                    problem = f"{type(error).__name__}: {error}"
                    if problem != application.problem:
                        log.exception("application %s cannot be looked after", application.name)
                    application.problem = problem
                finally:
                    application.lock.release()

    def _settle(self, application: Application) -> None:
        fenced_after_s = self._settings.lease_s + self._settings.lease_margin_s
        for standby in [*application.standbys]:
            if self._clock.monotonic() - standby.heard_at > fenced_after_s:
                self._end(application, standby, "not heard of for longer than its lease")
        while True:
            step = next_step(application.active, len(application.standbys), self._clock.monotonic(), fenced_after_s)
            if step == "release":
                assert application.active is not None
                why = "the subscriber left" if application.active.left else "not heard of for longer than its lease"
                self._end(application, application.active, why)
            elif step == "promote":
                follows = self._next_in_line(application)
                if follows is None or not self._activate(application, follows):
                    return
                application.standbys.remove(follows)
                application.active = follows
            else:
                return

    def _next_in_line(self, application: Application) -> Session | None:
        fenced_after_s = self._settings.lease_s + self._settings.lease_margin_s
        inherited = application.sent is None and self._clock.monotonic() < self._began + fenced_after_s
        return next_in_line(application.standbys, application.holder, inherited)

    def _hold(self, application: Application, subscriber: str) -> None:
        """Keeps who has the flows, for the publisher that follows this one."""
        if subscriber == application.holder:
            return
        try:
            self._markers.save_holder(self.dataset, application.name, subscriber)
        except MarkersNotSaved as error:
            log.warning(
                "a publisher that follows this one may give the flows of %s away early: %s", application.name, error
            )
        application.holder = subscriber

    def _end(self, application: Application, session: Session, reason: str) -> None:
        session.stream.end(reason)
        self._sessions.pop(session.stream.session, None)
        if application.active is session:
            application.active = None
            application.sent = max(application.sent or session.stream.sent, session.stream.sent)
            if session.left:
                self._hold(application, "")
        if session in application.standbys:
            application.standbys.remove(session)
        log.info("session %s of %s ends: %s", session.stream.session, application.name, reason)

    def _activate(self, application: Application, session: Session) -> bool:
        """Opens the stream where its flows stand; False if the log cannot be read now (the janitor tries again)."""
        try:
            letters = self.dead.retrying(self.dataset, application.name, self._settings.dead_letter_batch)
            if application.record.mode == "realtime":
                start = Resumption(self.source.bounds().through, (), {})
            else:
                start = resume(self.source, application.markers, self._on_fork, self._delivered)
            self._hold(application, session.stream.subscriber)
            application.sent = in_era(application.sent or self.source.bounds().through, self.source.era)
        except TailraceError as error:
            application.problem = str(error)
            log.warning("application %s cannot start: %s", application.name, error)
            return False
        application.problem = ""
        application.progress = None
        session.stream.post(letters)
        session.stream.open(start, application.sent)
        return True

    def _forked(self, error: LogDiverged) -> None:
        """Hands on that the log forked, and how far this era was delivered to anyone."""
        assert self._fork_found is not None
        applications = self.applications()
        places = [marker.position for one in applications for marker in one.markers.values()]
        places += [one.sent for one in applications if one.sent is not None]
        places += [one.active.stream.sent for one in applications if one.active is not None]
        self._fork_found(error, max((place for place in places if place.era == self.source.era), default=START))

    # ---- acknowledgements -------------------------------------------------------------------------------------------

    def acknowledge(self, ask: Acknowledge) -> None:
        """Moves markers, durably, before it returns."""
        application = self._application_of(ask.session, f"token {ask.token}")
        with application.lock:
            session = self._active(application, ask.session, f"token {ask.token}")
            if ask.epoch != self.epoch:
                raise AcknowledgementRefused(
                    token=f"token {ask.token}", reason=f"it is of epoch {ask.epoch}, this publisher's is {self.epoch}"
                )
            session.heard_at = self._clock.monotonic()
            moved = self._moved(application, session.stream, ask)
            if moved and application.record.mode != "realtime":
                self._markers.save(self.dataset, application.name, moved)
                application.markers.update(moved)
            application.losses += session.stream.close_token(ask.token)

    def _moved(self, application: Application, stream: Stream, ask: Acknowledge) -> dict[int, Marker]:
        if ask.checkpoint is not None:
            place = stream.checkpoint_at(ask.checkpoint.position)
            if place is None:
                return {}
            token = OpenToken(stream.shards, place)
        else:
            token = stream.open_token(ask.token)
        now = {shard: application.markers[shard] for shard in token.shards}
        moved = {shard: token.moved(marker) for shard, marker in now.items()}
        return {shard: marker for shard, marker in moved.items() if marker != now[shard]}

    def _application_of(self, session_id: str, what: str) -> Application:
        session = self._sessions.get(session_id)
        if session is None:
            raise AcknowledgementRefused(token=what, reason=f"session {session_id} is over")
        return self._roster.get(session.stream.application)

    @staticmethod
    def _active(application: Application, session_id: str, what: str) -> Session:
        active = application.active
        if active is None or active.stream.session != session_id:
            raise AcknowledgementRefused(token=what, reason=f"session {session_id} does not have the flows")
        return active

    # ---- dead letters -----------------------------------------------------------------------------------------------

    def bury(self, session_id: str, save: Callable[[Application], int], *, adds: bool = True) -> None:
        """Runs `save` (which makes letters, or their end, durable) for the application whose flows this session has."""
        application = self._application_of(session_id, "dead letters")
        with application.lock:
            session = self._active(application, session_id, "dead letters")
            session.heard_at = self._clock.monotonic()
            if adds and application.dead_letters >= self._settings.max_dead_letters:
                raise Unavailable(reason=f"{application.name!r} has {application.dead_letters} dead letters already")
            application.dead_letters += save(application)

    def retry_dead(self, name: str, letters: list[int] | None) -> int:
        """Marks letters for another try and hands them to the subscriber that is there, if one is."""
        application = self.application(name)
        with application.lock:
            retried = self.dead.retry(self.dataset, name, letters)
            if application.active and retried:
                batches = self.dead.load(self.dataset, name, retried, self._settings.dead_letter_batch)
                application.active.stream.post(batches)
            return len(retried)

    # ---- what others may know ---------------------------------------------------------------------------------------

    def application_of(self, session: str) -> str | None:
        """Whose session it is; None if it is over, or another publisher's."""
        found = self._sessions.get(session)
        return found.stream.application if found else None

    def application(self, name: str) -> Application:
        return self._roster.get(name)

    def applications(self) -> list[Application]:
        return self._roster.all()

    def reached(self, name: str, position: Position) -> tuple[bool, Position | None]:
        """Whether an application has processed everything up to a position, by its progress or its markers."""
        application = self.application(name)
        if position.era < self.source.era and application.acknowledged.era >= self.source.era:
            reason = f"the log is in era {self.source.era} now, and may not hold that write any more"
            raise LogDiverged(line=self.source.line, marker=position, reason=reason)
        soft = application.progress
        return application.acknowledged >= position or (soft is not None and soft >= position), soft

    def problem(self) -> str:
        """Why the dataset is not ready, empty if it is. Looks at the log's bounds on the way."""
        try:
            self.last_bounds = self.source.bounds()
        except LogError as error:
            return str(error)
        return self.caravans.error

    def drain(self) -> None:
        """Ends all streams, and has their subscribers acknowledge what they were sent: it need not come again."""
        with self._lock:
            self._draining = True
            sessions = list(self._sessions.values())
        deadline = Deadline(self._settings.drain_s, self._clock)
        for session in sessions:
            session.stream.end("the publisher is shutting down", last_token=True)
        unsettled = []
        for session in sessions:
            application = self._roster.get(session.stream.application)
            if not session.stream.wait_settled(deadline.left_s()):
                unsettled.append(application.name)
                continue
            with application.lock:
                if application.active is session:  # it has processed all that it was sent
                    self._hold(application, "")
        if unsettled:
            log.info("not acknowledged in time, and so sent again later: what was sent to %s", ", ".join(unsettled))

    def close(self) -> None:
        with self._lock:
            self._draining = self._closed = True
            for session in list(self._sessions.values()):
                session.stream.end("the publisher is shutting down")
        self.caravans.close()
