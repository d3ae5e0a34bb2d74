"""The applications of one dataset: those that are recorded, and how one more is made.

A record is made once, by the configuration or by a subscriber's first visit, and fixes where the application starts.
While that place is looked up in the log, which may take long, the applications that are there go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from tailrace.errors import LogError, NotFound, PositionInvalid, Unavailable
from tailrace.publisher.applications import Application, ApplicationRecord, refuse_difference
from tailrace.publisher.dead import DeadLetters
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.records import ApplicationRecords
from tailrace.publisher.resume import in_era
from tailrace.publisher.settings import PublisherSettings
from tailrace.sources.interface import Source
from tailrace.updates.filters import Filter
from tailrace.updates.position import Checkpoint, LinePosition, Marker, Position
from tailrace.wire.messages import Subscribe

log = logging.getLogger(__name__)


class Roster:
    """See the module. Safe to use from many threads."""

    def __init__(
        self,
        dataset: str,
        shards: Sequence[int],
        source: Source,
        records: ApplicationRecords,
        markers: MarkerStore,
        dead: DeadLetters,
        settings: PublisherSettings,
    ) -> None:
        self._dataset = dataset
        self._shards = shards
        self._source = source
        self._records = records
        self._markers = markers
        self._dead = dead
        self._settings = settings
        self._recording = threading.Lock()
        self._lock = threading.Lock()  # guards the dictionary
        self._applications = {record.application: self._known(record) for record in records.of(dataset)}

    def all(self) -> list[Application]:
        with self._lock:
            return list(self._applications.values())

    def get(self, name: str) -> Application:
        found = self._applications.get(name)
        if found is None:
            known = ", ".join(sorted(self._applications)) or "none yet"
            raise NotFound(what="application", name=name, remedy=f"dataset {self._dataset!r} has: {known}")
        return found

    def visited(self, ask: Subscribe) -> Application:
        """The application that a subscriber asks for: as it is recorded, or new where a first visit makes it."""
        application = self._applications.get(ask.application)
        if application is None and not self._settings.create_applications:
            raise NotFound(
                what="application",
                name=ask.application,
                remedy="name it in the configuration, or set create_applications",
            )
        return self.declared(ask)

    def declared(self, ask: Subscribe) -> Application:
        """The application as it is asked for, made if it is new; refused if it is recorded otherwise."""
        filter = str(Filter.parse(ask.filter)) if ask.filter else None
        application = self._applications.get(ask.application) or self._made(ask, filter)
        refuse_difference(application.record, filter, ask.mode)
        return application

    def _made(self, ask: Subscribe, filter: str | None) -> Application:
        """One new application at a time."""
        with self._recording:
            found = self._applications.get(ask.application)
            if found is not None:
                return found
            if len(self._applications) >= self._settings.max_applications:
                raise Unavailable(reason=f"there are {len(self._applications)} applications already (max_applications)")
            record = ApplicationRecord(self._dataset, ask.application, filter, ask.mode, self._start(ask.start))
            kept = self._records.create(record)
            application = self._known(kept)
            if kept == record:
                application.sent = record.start  # nobody was sent anything
            with self._lock:
                self._applications[ask.application] = application
        log.info("application %s of %s is new, from %s", ask.application, self._dataset, kept.start)
        return application

    def _known(self, record: ApplicationRecord) -> Application:
        found = self._markers.load(self._dataset, record.application)
        start = Marker(Checkpoint(record.start, None))
        return Application(
            record,
            {shard: found.get(shard, start) for shard in self._shards},
            holder=self._markers.holder(self._dataset, record.application),
            dead_letters=self._dead.count(self._dataset, record.application),
        )

    def _start(self, text: str) -> Position:
        try:
            bounds = self._source.bounds()
        except LogError as error:
            raise Unavailable(reason=f"a new application cannot start: {error}") from error
        if text == "earliest":
            return bounds.after
        if text == "latest":
            return bounds.through
        asked = LinePosition.parse(text)
        if asked.line != self._source.line:
            raise PositionInvalid(text=text, reason=f"this dataset's line is {self._source.line!r}")
        if in_era(asked.position, self._source.era) > bounds.through:
            raise PositionInvalid(text=text, reason=f"it lies past the head of the log, {bounds.through}")
        return asked.position
