"""The coordinator of one machine: one SQLite file in the data folder, shared by the node's processes.

Records, members and claims are rows; every change is one fsynced transaction. A session is a row and a lease file (see
`leases`) that one thread renews without touching SQLite, so that neither a full disk nor a slow fsync costs a lease.
Another thread, the keeper, looks 20 times a second whether any process committed something (one cheap PRAGMA), tells
this process's watches, and ends other processes' sessions whose lease is over. Nobody has to wait for a keeper: whoever
claims a name looks at the holder's lease himself.

Every change also notes its topic under the next number of one sequence, which is how a process learns what others
changed since it last looked. After a reboot all sessions of before are over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Final

from tailrace.coordination.interface import (
    LEASE_S,
    MAX_RECORD_BYTES,
    Claim,
    Holder,
    Member,
    Record,
    Topic,
    Watch,
    require_path,
)
from tailrace.coordination.leases import LeaseFile, has_ended
from tailrace.coordination.sessions import EmbeddedSession, SessionSet
from tailrace.coordination.watches import WatchBoard
from tailrace.errors import CoordinatorUnavailable, DatabaseBusy, DatabaseFull, Fenced, RecordTooLarge, TailraceError
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.runtime.logging import get_log
from tailrace.runtime.sqlite import BUSY_TIMEOUT_S, Database, Parameters, Row, Transaction
from tailrace.runtime.tasks import Workers

log = get_log(__name__)

DATABASE_NAME: Final = "coordination.db"
POLL_S: Final = 0.05
MAX_CHANGES_KEPT: Final = 10_000  # topics noted; a process that missed more wakes all its watches
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_MIGRATIONS: Final = (
    (
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL, boot TEXT NOT NULL)",
        "CREATE TABLE members (grp TEXT, id TEXT, info BLOB NOT NULL, session TEXT NOT NULL, PRIMARY KEY (grp, id))",
        "CREATE INDEX members_by_session ON members (session)",
        "CREATE TABLE claims (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, session TEXT)",
        "CREATE INDEX claims_by_session ON claims (session)",
        "CREATE TABLE records (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)",
        "CREATE TABLE changes (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, name TEXT, UNIQUE (kind, name))",
    ),
)


class EmbeddedCoordinator:
    """Implements `Coordinator`. `folder` holds the file and the leases; each process opens its own."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        poll_s: float = POLL_S,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self._folder = folder
        self._leases = folder / "sessions"
        self._clock = clock
        self._poll_s = poll_s
        self._boot = _boot_id()
        self._database = Database(
            folder / DATABASE_NAME,
            kind="coordination",
            migrations=_MIGRATIONS,
            busy_timeout_s=busy_timeout_s,
            before_commit=before_commit,
        )
        self._board = WatchBoard(clock)
        self._sessions = SessionSet(clock)
        self._trouble = ""
        try:
            self._tidy_up()
            self._last_number = self._newest_number()
        except BaseException:
            self._database.close()
            raise
        self._workers = Workers("coordination", clock=clock)
        self._workers.start("leases", self._sessions.keep_renewed, self._workers.stop)
        self._workers.start("keeper", self._keep)

    # ---- sessions, members, claims ----------------------------------------------------------------------------

    def open_session(self, name: str, *, lease_s: float = LEASE_S) -> EmbeddedSession:
        session_id = uuid.uuid4().hex
        with self._translated():
            lease = LeaseFile(self._leases / session_id, self._clock.monotonic() + lease_s)
        try:
            with self._transaction() as transaction:
                transaction.execute("INSERT INTO sessions VALUES (?, ?, ?)", (session_id, name, self._boot))
                if not lease.exists():  # another process took it for a stray one
                    raise CoordinatorUnavailable(path=str(lease.path), reason="the lease file was removed")
        except BaseException:
            lease.close()
            raise
        session = EmbeddedSession(self, session_id, name, lease, lease_s, self._clock)
        self._sessions.add(session)
        return session

    def close_session(self, session: EmbeddedSession) -> None:
        """For `EmbeddedSession.close` and a lost lease: gives everything back.

        Without its lease file a session is over for everyone, so that this also holds where the database is in trouble;
        whichever keeper finds it then removes what is left of it.
        """
        self._sessions.remove(session)
        try:
            self._end_sessions([session.id])
        except TailraceError as error:
            log.warning("session ended, not removed yet", session=session.id, error=str(error))
        finally:
            session.close_lease()

    def join(self, session: EmbeddedSession, group: str, member_id: str, info: bytes) -> None:
        with self._transaction(Topic("members", group)) as transaction:
            _require_session(transaction, session)
            transaction.execute(
                "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)", (group, member_id, info, session.id)
            )

    def leave(self, session: EmbeddedSession, group: str, member_id: str) -> bool:
        with self._transaction(Topic("members", group)) as transaction:
            statement = "DELETE FROM members WHERE grp = ? AND id = ? AND session = ?"
            return transaction.execute(statement, (group, member_id, session.id)) == 1

    def members(self, group: str) -> list[Member]:
        rows = self._read(
            "SELECT m.id, m.info, s.id, s.boot FROM members m JOIN sessions s ON s.id = m.session"
            " WHERE m.grp = ? ORDER BY m.id",
            (group,),
        )
        return [
            Member(member_id, info, session) for member_id, info, session, boot in rows if self._lives(session, boot)
        ]

    def claim(self, session: EmbeddedSession, name: str) -> Claim | None:
        with self._transaction(Topic("claim", name)) as transaction:
            _require_session(transaction, session)
            found = transaction.read_one(
                "SELECT c.epoch, s.id, s.boot FROM claims c LEFT JOIN sessions s ON s.id = c.session WHERE c.name = ?",
                (name,),
            )
            epoch, holder, boot = found or (0, None, None)
            if holder == session.id:
                return Claim(name, epoch, session.id)
            if holder is not None and self._lives(holder, boot):
                return None
            transaction.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (name, epoch + 1, session.id))
            return Claim(name, epoch + 1, session.id)

    def release(self, claim: Claim) -> bool:
        with self._transaction(Topic("claim", claim.name)) as transaction:
            statement = "UPDATE claims SET session = NULL WHERE name = ? AND epoch = ? AND session = ?"
            return transaction.execute(statement, claim) == 1

    def holder(self, name: str) -> Holder | None:
        rows = self._read(
            "SELECT s.id, s.name, c.epoch, s.boot FROM claims c JOIN sessions s ON s.id = c.session WHERE c.name = ?",
            (name,),
        )
        found = [Holder(session, called, epoch) for session, called, epoch, boot in rows if self._lives(session, boot)]
        return found[0] if found else None

    # ---- records ----------------------------------------------------------------------------------------------

    def get(self, path: str) -> Record | None:
        rows = self._read("SELECT value, version FROM records WHERE path = ?", (require_path(path),))
        return Record(*rows[0]) if rows else None

    def create(self, path: str, value: bytes) -> bool:
        _require_size(path, value)
        with self._transaction(Topic("record", require_path(path))) as transaction:
            return transaction.execute("INSERT OR IGNORE INTO records VALUES (?, ?, 1)", (path, value)) == 1

    def put(self, path: str, value: bytes, expected_version: int, *, under: Claim | None = None) -> int | None:
        _require_size(path, value)
        with self._transaction(Topic("record", require_path(path))) as transaction:
            if under is not None and not _still_held(transaction, under):
                return None
            statement = "UPDATE records SET value = ?, version = version + 1 WHERE path = ? AND version = ?"
            done = transaction.execute(statement, (value, path, expected_version)) == 1
            return expected_version + 1 if done else None

    def delete(self, path: str, expected_version: int) -> bool:
        with self._transaction(Topic("record", require_path(path))) as transaction:
            statement = "DELETE FROM records WHERE path = ? AND version = ?"
            return transaction.execute(statement, (path, expected_version)) == 1

    def children(self, path: str) -> list[str]:
        prefix = f"{require_path(path)}/" if path else ""
        rows = self._read("SELECT path FROM records WHERE substr(path, 1, ?) = ?", (len(prefix), prefix))
        return sorted({found.removeprefix(prefix).partition("/")[0] for (found,) in rows})

    # ---- watches and upkeep -----------------------------------------------------------------------------------

    def watch(self, *topics: Topic, event: Event | None = None) -> Watch:
        return self._board.add(topics, event)

    def not_ready(self) -> list[str]:
        return self._workers.not_ready() + ([self._trouble] if self._trouble else [])

    def close(self) -> None:
        try:
            for session in self._sessions.all():
                session.close()
            self._workers.stop.set()
            self._sessions.wake.set()
            self._workers.join()
        finally:
            self._database.close()

    def __enter__(self) -> EmbeddedCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self) -> None:
        seen: int | None = None
        while not self._clock.wait(self._workers.stop, self._poll_s):
            try:
                change_count = self._database.change_count()
                if change_count != seen:
                    self._tell_watches()
                    seen = change_count
                self._close_lost_sessions()
                self._end_sessions_that_are_over()
                self._trouble = ""
            except TailraceError as error:  # reported by `not_ready`, and tried again at the next look
                if not self._trouble:
                    log.warning("coordinator in trouble", error=str(error))
                self._trouble = str(error)

    def _tell_watches(self) -> None:
        rows = self._database.read(
            "SELECT number, kind, name FROM changes WHERE number > ? ORDER BY number", (self._last_number,)
        )
        if not rows:
            return
        last_number, self._last_number = self._last_number, int(rows[-1][0])
        if self._last_number - last_number >= MAX_CHANGES_KEPT:
            self._board.all_may_have_changed()
        else:
            self._board.changed(Topic(kind, name) for _, kind, name in rows)

    def _close_lost_sessions(self) -> None:
        for session in self._sessions.all():
            if session.lost.is_set():
                self.close_session(session)

    def _end_sessions_that_are_over(self) -> None:
        rows = self._read("SELECT id, boot FROM sessions")
        over = [session for session, boot in rows if not self._lives(session, boot)]
        if over:
            log.info("sessions are over", sessions=",".join(over))
            self._end_sessions(over)
            for session in over:
                with self._translated():
                    (self._leases / session).unlink(missing_ok=True)

    def _tidy_up(self) -> None:
        """What processes that died have left."""
        with self._translated():
            self._leases.mkdir(exist_ok=True)
        self._end_sessions_that_are_over()
        self._remove_stray_leases()

    def _remove_stray_leases(self) -> None:
        """Files of processes that died before their session was in the database, or after it was out of it.

        Within a transaction, so that no session comes in between the look and the removal.
        """
        with self._transaction() as transaction:
            known = {session for (session,) in transaction.read("SELECT id FROM sessions")}
            for file in self._leases.iterdir():
                if file.name not in known and has_ended(file, self._clock.monotonic()):
                    file.unlink(missing_ok=True)

    def _end_sessions(self, sessions: list[str]) -> None:
        topics: set[Topic] = set()
        with self._transaction() as transaction:
            for session in sessions:
                for group, member_id in transaction.read("SELECT grp, id FROM members WHERE session = ?", (session,)):
                    topics.add(Topic("members", group))
                    transaction.execute("DELETE FROM members WHERE grp = ? AND id = ?", (group, member_id))
                for (name,) in transaction.read("SELECT name FROM claims WHERE session = ?", (session,)):
                    topics.add(Topic("claim", name))
                    transaction.execute("UPDATE claims SET session = NULL WHERE name = ?", (name,))
                transaction.execute("DELETE FROM sessions WHERE id = ?", (session,))
            _note(transaction, topics)
        self._board.changed(topics)

    def _lives(self, session: str, boot: str) -> bool:
        with self._translated():
            return boot == self._boot and not has_ended(self._leases / session, self._clock.monotonic())

    def _newest_number(self) -> int:
        return int(self._read("SELECT coalesce(max(number), 0) FROM changes")[0][0])

    def _read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        with self._translated():
            return self._database.read(statement, parameters)

    @contextmanager
    def _transaction(self, *topics: Topic) -> Iterator[Transaction]:
        """Perhaps a change of `topics`: if it is one, it is noted for other processes, and told to this one's watches.

        What changed nothing must wake nobody: two processes that try to claim what a third one holds would keep each
        other awake.
        """
        with self._translated(), self._database.transaction() as transaction:
            before = transaction.change_count()
            yield transaction
            changed = topics if transaction.change_count() != before else ()
            _note(transaction, changed)
        self._board.changed(changed)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DatabaseFull, DatabaseBusy) as error:
            raise CoordinatorUnavailable(path=str(self._database.path), reason=str(error)) from error
        except OSError as error:  # of a lease file: no room, no more open files
            raise CoordinatorUnavailable(path=str(self._leases), reason=error.strerror or str(error)) from error


def _note(transaction: Transaction, topics: Collection[Topic]) -> None:
    """Puts each topic under the next number; of a topic only its last change is kept."""
    transaction.execute_many("INSERT OR REPLACE INTO changes (kind, name) VALUES (?, ?)", list(topics))
    if topics:
        newest = "(SELECT max(number) FROM changes)"
        transaction.execute(f"DELETE FROM changes WHERE number <= {newest} - ?", (MAX_CHANGES_KEPT,))


def _require_session(transaction: Transaction, session: EmbeddedSession) -> None:
    known = transaction.read_one("SELECT 1 FROM sessions WHERE id = ?", (session.id,))
    if known is None or session.lease_left_s() <= 0:
        raise Fenced(what=f"session {session.id} of {session.name}", reason="its lease has ended; open another one")


def _still_held(transaction: Transaction, claim: Claim) -> bool:
    statement = "SELECT 1 FROM claims WHERE name = ? AND epoch = ? AND session = ?"
    return transaction.read_one(statement, claim) is not None


def _require_size(path: str, value: bytes) -> None:
    if len(value) > MAX_RECORD_BYTES:
        raise RecordTooLarge(what=path, size=len(value), limit=MAX_RECORD_BYTES)


def _boot_id() -> str:
    """What tells this boot from others; empty on systems that have none, where locks end with a boot anyway."""
    return _BOOT_ID_FILE.read_text().strip() if _BOOT_ID_FILE.exists() else ""
