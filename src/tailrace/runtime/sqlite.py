"""A small SQLite file of Tailrace's own: markers, dead letters, the embedded coordinator.

Every commit is in the write-ahead journal and fsynced before it returns (journal WAL, synchronous FULL). One connection
writes, another reads, each under a lock, so that threads share a `Database` and a slow fsync holds up no reader. Other
processes may have the same file open. The file says what it holds and in which format version; a newer one is refused,
an older one is brought up by the missing migrations. SQLite's errors are translated here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final, Self

from tailrace.errors import DatabaseBusy, DatabaseFailed, DatabaseFull, VersionTooNew
from tailrace.runtime.clock import SYSTEM_CLOCK, Deadline

BUSY_TIMEOUT_S: Final = 5.0
_RETRY_OPEN_S: Final = 0.01
_FORMAT_TABLE: Final = "CREATE TABLE IF NOT EXISTS tailrace_format (kind TEXT NOT NULL, version INTEGER NOT NULL)"

Row = tuple[Any, ...]
Parameters = Sequence[Any]


class Transaction:
    """What can be done between begin and commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Parameters = ()) -> int:
        """Runs a statement that changes something; returns how many rows it changed."""
        return self._connection.execute(statement, parameters).rowcount

    def execute_many(self, statement: str, rows: Sequence[Parameters]) -> None:
        self._connection.executemany(statement, rows)

    def change_count(self) -> int:
        """How many rows this connection has changed so far."""
        return self._connection.total_changes

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        return self._connection.execute(statement, parameters).fetchall()

    def read_one(self, statement: str, parameters: Parameters = ()) -> Row | None:
        found: Row | None = self._connection.execute(statement, parameters).fetchone()
        return found


class Database:
    """An open file. `migrations[n]` are the statements that lead from format version n to n + 1.

    `before_commit` is called inside each transaction right before it commits, for tests: it may block, as a slow fsync
    does, or raise `sqlite3.OperationalError`, as a full disk does.
    """

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        migrations: Sequence[Sequence[str]],
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        before_commit: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.before_commit = before_commit
        self._busy_timeout_s = busy_timeout_s
        self._writing, self._reading = Lock(), Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DatabaseFailed(path=str(path), reason=error.strerror or str(error)) from error
        with self._translated():
            self._writer = self._connect()
            try:
                self._prepare(kind, migrations)
                self._reader = self._connect()
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Everything inside happens or nothing does, and when the block has ended it is durable."""
        with self._writing, self._translated(), _rolled_back(self._writer):
            self._writer.execute("BEGIN IMMEDIATE")
            yield Transaction(self._writer)
            if self.before_commit is not None:
                self.before_commit()
            self._writer.execute("COMMIT")

    def read(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Rows of the last committed state; never waits for a transaction under way."""
        with self._reading, self._translated():
            return self._reader.execute(statement, parameters).fetchall()

    def read_one(self, statement: str, parameters: Parameters = ()) -> Row | None:
        with self._reading, self._translated():
            found: Row | None = self._reader.execute(statement, parameters).fetchone()
            return found

    def change_count(self) -> int:
        """A number that differs from the last answer if anyone, in any process, committed in between. Cheap."""
        with self._reading, self._translated():
            return int(self._reader.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._switch_to_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _switch_to_wal(self, connection: sqlite3.Connection) -> None:
        """The switch needs the file for itself and does not obey the busy timeout: others may be opening it too."""
        deadline = Deadline(self._busy_timeout_s)
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or deadline.passed():
                    raise
                SYSTEM_CLOCK.wait(Event(), _RETRY_OPEN_S)

    def _prepare(self, kind: str, migrations: Sequence[Sequence[str]]) -> None:
        with _rolled_back(self._writer):
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute(_FORMAT_TABLE)
            found = self._writer.execute("SELECT kind, version FROM tailrace_format").fetchone()
            found_kind, version = found or (kind, 0)
            if found_kind != kind:
                raise DatabaseFailed(path=str(self.path), reason=f"holds {found_kind}, not {kind}")
            if version > len(migrations):
                raise VersionTooNew(what=f"{self.path} ({kind})", found=version, known=len(migrations))
            for statement in [statement for step in migrations[version:] for statement in step]:
                self._writer.execute(statement)
            if found is None:
                self._writer.execute("INSERT INTO tailrace_format VALUES (?, ?)", (kind, len(migrations)))
            elif version < len(migrations):
                self._writer.execute("UPDATE tailrace_format SET version = ?", (len(migrations),))
            self._writer.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error) -> DatabaseFailed:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
        if code == sqlite3.SQLITE_FULL or "disk is full" in str(error):
            return DatabaseFull(path=str(self.path))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return DatabaseBusy(path=str(self.path), timeout_s=self._busy_timeout_s)
        return DatabaseFailed(path=str(self.path), reason=str(error))


@contextmanager
def _rolled_back(connection: sqlite3.Connection) -> Iterator[None]:
    """Leaves no transaction open behind an error; some errors of SQLite have ended it already."""
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
