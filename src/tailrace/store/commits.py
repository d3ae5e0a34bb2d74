"""How writes become durable: one thread commits, another fsyncs, and each takes whatever gathered meanwhile.

Callers queue `Commit`s. The commit thread takes all that are queued, lays them into one RocksDB batch, each write
opened by its header record, and writes that to the log. As no other thread writes, every sequence number is known
beforehand (and checked after). The sync thread then fsyncs once for all groups that were written since its last fsync,
moves the horizon, and answers: a write waits for the rest of the running fsync and for its own. Readers of the log are
woken before the writers are answered.

Nothing is answered that is not as durable as it asked for. When the log cannot be written or fsynced, everything that
is under way is answered with the error, and new writes are refused at once until the store has recovered. Writing that
fails (a full disk) mends: the database is opened anew, as after a crash. An fsync that fails does not: the kernel may
have dropped the pages, and later fsyncs would say that all is well.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event, Lock, Thread

from tailrace.errors import StoreFailed, TailraceError, Unavailable, UpdateInvalid
from tailrace.runtime.clock import Clock
from tailrace.store.database import Database, FsyncFailed
from tailrace.store.folder import SafeNote, free_bytes
from tailrace.store.operations import Prepared, WriteResult
from tailrace.store.options import StoreOptions
from tailrace.updates.header import encode_header
from tailrace.updates.position import Position
from tailrace.wire.store_messages import Durability

Outcome = WriteResult | TailraceError
Answer = Callable[[Sequence[Outcome]], None]
Syncer = Callable[[Database], None]  # makes everything durable that was applied before the call; tests hold it back
Reopen = Callable[[], Database]  # opens the database anew after a failure; raises while that cannot be done

_log = logging.getLogger(__name__)


def sync_database(database: Database) -> None:
    database.sync()


@dataclass(slots=True)
class Commit:
    """Some atomic writes that are answered together. `answer` is called once, briefly, in a thread of the store."""

    writes: Sequence[Prepared]
    durability: Durability
    answer: Answer
    size_bytes: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size_bytes = sum(write.size_bytes for write in self.writes)


class Commits:
    """The queue and its two threads, over one database."""

    def __init__(
        self, database: Database, reopen: Reopen, *, era: int, options: StoreOptions, clock: Clock, syncer: Syncer
    ) -> None:
        self.database = database
        self.failure: StoreFailed | None = None
        self.safe_through = self.written_through = database.latest_sequence()
        self._reopen = reopen
        self._era = era
        self._options = options
        self._clock = clock
        self._syncer = syncer
        self._committed_at_us = database.last_committed_at_us()
        self._note = SafeNote(database.path, clock)
        self._lock = Lock()  # guards what follows; each condition is waited on by one kind of thread
        self._to_commit = Condition(self._lock)
        self._to_sync = Condition(self._lock)
        self._room = Condition(self._lock)
        self._idle = Condition(self._lock)
        self._queued: deque[Commit] = deque()
        self._unsynced: list[Commit] = []
        self._sync_wanted = self.written_through
        self._syncing = False
        self._under_way_bytes = self._under_way_writes = 0
        self._closing = self._commits_ended = False
        self._lost = False  # an fsync failed: only a new process may go on
        self._advanced = Condition()  # guards the horizon
        self._stop = Event()
        self._threads = [
            Thread(target=self._run_commits, name="store-commit", daemon=True),
            Thread(target=self._run_syncs, name="store-sync", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # ---- callers ---------------------------------------------------------------------------------------------------

    def submit(self, commit: Commit) -> None:
        """Queues a commit; waits while too much is under way."""
        with self._lock:
            if not self._room.wait_for(lambda: self._has_room(commit) or self._refusal(), self._options.queue_wait_s):
                under_way = f"{self._under_way_writes} writes of {self._under_way_bytes} bytes are under way"
                reason = f"the store is busy: {under_way}, and none was answered for {self._options.queue_wait_s:g} s"
                raise Unavailable(reason=reason)
            refusal = self._refusal()
            if refusal is not None:
                raise refusal
            self._under_way_bytes += commit.size_bytes
            self._under_way_writes += len(commit.writes)
            self._queued.append(commit)
            self._to_commit.notify()

    def wait_beyond(self, sequence: int, timeout_s: float) -> int:
        with self._advanced:
            self._advanced.wait_for(lambda: self.safe_through > sequence or self._stop.is_set(), timeout_s)
        return self.safe_through

    def close(self) -> None:
        """Answers what was queued, then ends both threads. The database stays open."""
        with self._lock:
            self._closing = True
            self._stop.set()
            self._to_commit.notify()
            self._room.notify_all()
        for thread in self._threads:
            thread.join()
        if self._options.durability != "none" and self.failure is None:
            self._note.write(self.safe_through, now=True)
        with self._advanced:
            self._advanced.notify_all()

    def _has_room(self, commit: Commit) -> bool:
        return self._under_way_writes == 0 or (
            self._under_way_bytes + commit.size_bytes <= self._options.max_queued_bytes
            and self._under_way_writes + len(commit.writes) <= self._options.max_queued_writes
        )

    def _refusal(self) -> TailraceError | None:
        if self._closing:
            return Unavailable(reason=f"store {self.database.path} is closing")
        return self.failure

    # ---- the commit thread -----------------------------------------------------------------------------------------

    def _run_commits(self) -> None:
        while True:
            with self._lock:
                self._to_commit.wait_for(lambda: self._queued or self._closing or self.failure)
                failure = self.failure
                group = list(self._queued) if failure else self._taken()
                if failure:
                    self._queued.clear()
            if failure:
                self._settle(group, failure)
                if not self._recovered():
                    break
            elif group:
                self._guarded(self._commit, group)
            else:
                break
        with self._lock:
            self._commits_ended = True
            self._to_sync.notify()

    def _taken(self) -> list[Commit]:
        """Whatever is queued, up to a limit; one commit alone if it asked for fsyncs of its own."""
        group: list[Commit] = []
        size = 0
        while self._queued:
            following = self._queued[0]
            alone = following.durability == "fsync"
            if group and (alone or size + following.size_bytes > self._options.max_group_bytes):
                break
            group.append(self._queued.popleft())
            size += following.size_bytes
            if alone:
                break
        return group

    def _commit(self, group: list[Commit]) -> None:
        if group[0].durability == "fsync":
            for write in group[0].writes:
                self._write([(group[0], write)])
                self._syncer(self.database)
                self._advance(self.written_through)
            self._settle(group)
            return
        self._write([(commit, write) for commit in group for write in commit.writes])
        synced = [commit for commit in group if commit.durability != "none"]
        if self._options.durability == "none":
            self._advance(self.written_through)
        with self._lock:
            self._unsynced += synced
            self._sync_wanted = self.written_through
            self._to_sync.notify()
        self._settle([commit for commit in group if commit.durability == "none"])

    def _write(self, writes: list[tuple[Commit, Prepared]]) -> None:
        """One RocksDB batch; afterwards each write's outcome stands in its commit."""
        database = self.database
        batch = database.begin()
        sequence = database.latest_sequence()
        committed_at_us = self._next_committed_at_us()
        for commit, write in writes:
            try:
                database.require_tables(write.tables)
            except UpdateInvalid as error:
                commit.outcomes.append(error)
                continue
            database.add(batch, encode_header(committed_at_us, sequence + 1, write.shards), write)
            first, sequence = sequence + 2, sequence + 1 + len(write)
            commit.outcomes.append(WriteResult(first, sequence, Position(self._era, sequence)))
        database.apply(batch)
        found = database.latest_sequence()
        assert found == sequence, f"the log stands at {found}, {sequence} was expected: someone else writes to it"
        self.written_through = sequence

    def _next_committed_at_us(self) -> int:
        """The wall clock, held still while it lies in the past: readers find a time in the log by bisection."""
        self._committed_at_us = max(self._committed_at_us, int(self._clock.wall() * 1e6))
        return self._committed_at_us

    def _recovered(self) -> bool:
        """Opens the database anew as soon as that can be done; False if the store closes first or may not go on."""
        with self._lock:
            self._idle.wait_for(lambda: not self._syncing)
        while not self._clock.wait(self._stop, None if self._lost else self._options.recover_interval_s):
            if free_bytes(self.database.path) < self._options.recover_free_bytes:
                continue
            self.database.close()
            try:
                database = self._reopen()
            except StoreFailed as error:
                _log.warning("store %s is not back yet: %s", self.database.path, error)
                continue
            return self._resume(database)
        return False

    def _resume(self, database: Database) -> bool:
        self.database = database
        sequence = database.latest_sequence()
        with self._lock:
            if sequence < self.safe_through:
                reason = f"its log ends at sequence {sequence}, though {self.safe_through} was safe; restore a backup"
                self.failure, self._lost = StoreFailed(path=str(database.path), reason=reason), True
                return True
            self.written_through = self._sync_wanted = sequence
            self.failure = None
        _log.warning("store %s takes writes again, from sequence %d", database.path, sequence)
        self._advance(sequence)
        return True

    # ---- the sync thread -------------------------------------------------------------------------------------------

    def _run_syncs(self) -> None:
        while True:
            with self._lock:
                self._to_sync.wait_for(self._has_sync)
                if self._commits_ended and not self._wants_sync():
                    return
                commits, self._unsynced = self._unsynced, []
                failure = self.failure
                self._syncing = failure is None
            if failure:
                self._settle(commits, failure)
                continue
            self._guarded(self._sync, commits)
            with self._lock:
                self._syncing = False
                self._idle.notify()

    def _has_sync(self) -> bool:
        return self._commits_ended or self._wants_sync()

    def _wants_sync(self) -> bool:
        return bool(self._unsynced) or (self._sync_wanted > self.safe_through and self.failure is None)

    def _sync(self, commits: list[Commit]) -> None:
        through = self.written_through  # `commits` are in it, as they were queued after they were written
        self._syncer(self.database)
        self._advance(through)
        self._settle(commits)
        if self._options.durability != "none":
            self._note.write(through)

    # ---- both ------------------------------------------------------------------------------------------------------

    def _advance(self, through: int) -> None:
        with self._advanced:
            if through > self.safe_through:
                self.safe_through = through
                self._advanced.notify_all()

    def _settle(self, commits: list[Commit], failure: StoreFailed | None = None) -> None:
        for commit in commits:
            try:
                commit.answer([failure] * len(commit.writes) if failure else commit.outcomes)
            except Exception:  # noqa: BLE001 - a caller's bug must not end the thread that answers all others
                _log.exception("the answer to a write could not be handed over")
        if commits:
            with self._lock:
                self._under_way_bytes -= sum(commit.size_bytes for commit in commits)
                self._under_way_writes -= sum(len(commit.writes) for commit in commits)
                self._room.notify_all()

    def _guarded(self, step: Callable[[list[Commit]], None], commits: list[Commit]) -> None:
        """Runs a step; if it fails, its commits are answered with the failure and the store takes no more of them."""
        try:
            step(commits)
        except Exception as error:  # noqa: BLE001 - whatever it is, callers must be answered
            if not isinstance(error, StoreFailed):
                _log.exception("store %s failed in an unforeseen way", self.database.path)
            failure = _shown(error, self.database)
            with self._lock:
                self._lost = self._lost or isinstance(error, FsyncFailed) or not isinstance(error, StoreFailed)
                self.failure = self.failure or failure
                self._to_commit.notify()
                self._to_sync.notify()
                self._room.notify_all()
            _log.error("%s", failure)
            self._settle(commits, failure)


def _shown(error: Exception, database: Database) -> StoreFailed:
    reason = str(error.fields["reason"]) if isinstance(error, StoreFailed) else f"{type(error).__name__}: {error}"
    consequence = "writes that were under way may or may not be in the log; no new ones are taken"
    return StoreFailed(path=str(database.path), reason=f"{reason} ({consequence})")
