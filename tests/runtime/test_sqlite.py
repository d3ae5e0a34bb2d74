from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tailrace.errors import DatabaseBusy, DatabaseFailed, DatabaseFull, Kind, VersionTooNew
from tailrace.runtime.sqlite import Database

FIRST = ("CREATE TABLE markers (flow TEXT PRIMARY KEY, sequence INTEGER NOT NULL)",)
SECOND = ("ALTER TABLE markers ADD COLUMN witness INTEGER", "UPDATE markers SET witness = 7")


def open_markers(path: Path, *migrations: tuple[str, ...], busy_timeout_s: float = 5.0) -> Database:
    return Database(path, kind="markers", migrations=migrations or (FIRST,), busy_timeout_s=busy_timeout_s)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_markers(tmp_path / "publisher" / "markers.db") as opened:
        yield opened


def put(database: Database, flow: str, sequence: int) -> None:
    with database.transaction() as transaction:
        transaction.execute("INSERT OR REPLACE INTO markers VALUES (?, ?)", (flow, sequence))


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    with open_markers(tmp_path / "m.db") as first:
        put(first, "a", 1)
    with open_markers(tmp_path / "m.db") as second:
        assert second.read("SELECT * FROM markers") == [("a", 1)]


def test_commits_are_fsynced(database: Database) -> None:
    with database.transaction() as transaction:
        assert transaction.read_one("PRAGMA synchronous") == (2,)
        assert transaction.read_one("PRAGMA journal_mode") == ("wal",)


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.transaction() as transaction:  # noqa: PT012
        transaction.execute_many("INSERT INTO markers VALUES (?, ?)", [("a", 1), ("b", 2)])
        raise RuntimeError("no")
    assert database.read("SELECT * FROM markers") == []
    put(database, "c", 3)
    assert database.read_one("SELECT flow FROM markers") == ("c",)


def test_readers_do_not_wait_for_a_slow_fsync(database: Database) -> None:
    put(database, "a", 1)
    held, release = Event(), Event()

    def hold() -> None:
        held.set()
        assert release.wait(10)

    database.before_commit = hold
    writer = Thread(target=put, args=(database, "a", 2))
    writer.start()
    assert held.wait(5)
    assert database.read("SELECT sequence FROM markers") == [(1,)]
    release.set()
    writer.join(5)
    assert database.read("SELECT sequence FROM markers") == [(2,)]


def test_a_full_disk_is_told_apart_and_leaves_nothing(database: Database) -> None:
    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    database.before_commit = full
    with pytest.raises(DatabaseFull) as caught:
        put(database, "a", 1)
    assert caught.value.kind is Kind.RETRY
    database.before_commit = None
    assert database.read("SELECT * FROM markers") == []
    put(database, "a", 2)


def test_a_file_that_may_not_grow_counts_as_a_full_disk(database: Database) -> None:
    with database.transaction() as transaction:
        pages = transaction.read_one("PRAGMA page_count")
        assert pages is not None
        transaction.read(f"PRAGMA max_page_count = {pages[0]}")
    with pytest.raises(DatabaseFull), database.transaction() as transaction:
        transaction.execute_many("INSERT INTO markers VALUES (?, ?)", [(f"{n:0500}", n) for n in range(100)])
    put(database, "small", 1)
    assert database.read("SELECT flow FROM markers") == [("small",)]


def test_a_lock_held_by_another_process_is_reported_after_the_timeout(tmp_path: Path) -> None:
    with open_markers(tmp_path / "m.db", busy_timeout_s=0.05) as database:
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy):
            put(database, "a", 1)
        other.execute("ROLLBACK")
        other.close()
        put(database, "a", 1)


def test_an_older_file_is_brought_up(tmp_path: Path) -> None:
    with open_markers(tmp_path / "m.db", FIRST) as old:
        put(old, "a", 1)
    with open_markers(tmp_path / "m.db", FIRST, SECOND) as new:
        assert new.read("SELECT * FROM markers") == [("a", 1, 7)]
    with open_markers(tmp_path / "m.db", FIRST, SECOND) as again:
        assert again.read("SELECT version FROM tailrace_format") == [(2,)]


def test_a_newer_file_is_refused_untouched(tmp_path: Path) -> None:
    open_markers(tmp_path / "m.db", FIRST, SECOND).close()
    with pytest.raises(VersionTooNew) as caught:
        open_markers(tmp_path / "m.db", FIRST)
    assert (caught.value.found, caught.value.known) == (2, 1)


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    Database(tmp_path / "m.db", kind="dead letters", migrations=()).close()
    with pytest.raises(DatabaseFailed, match="holds dead letters, not markers"):
        open_markers(tmp_path / "m.db")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.db").write_bytes(b"certainly no database" * 100)
    with pytest.raises(DatabaseFailed, match=r"m.db: file is not a database"):
        open_markers(tmp_path / "m.db")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseFailed, match="file"):
        open_markers(tmp_path / "file" / "m.db")


def test_a_commit_elsewhere_changes_the_count(tmp_path: Path, database: Database) -> None:
    before = database.change_count()
    assert database.change_count() == before
    with open_markers(database.path) as other:
        put(other, "a", 1)
    after = database.change_count()
    assert after != before
    put(database, "b", 1)
    assert database.change_count() != after


def test_several_processes_open_and_write_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tailrace.runtime.sqlite import Database\n"
        "database = Database(Path(sys.argv[1]), kind='count', migrations=(('CREATE TABLE n (n INT)',),))\n"
        "for n in range(20):\n"
        "    with database.transaction() as t: t.execute('INSERT INTO n VALUES (?)', (n,))\n"
        "database.close()\n"
    )
    file = str(tmp_path / "n.db")
    writers = [subprocess.Popen([sys.executable, "-c", program, file]) for _ in range(3)]
    assert [writer.wait(20) for writer in writers] == [0, 0, 0]
    with Database(Path(file), kind="count", migrations=(("-",),)) as database:
        assert database.read_one("SELECT count(*) FROM n") == (60,)
