"""The file in which a publisher keeps what must outlive it: markers and dead letters, in its data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailrace.runtime.sqlite import Database

FILE_NAME: Final = "publisher.sqlite"
KIND: Final = "publisher"
MIGRATIONS: Final = (
    (
        """CREATE TABLE markers (
            dataset TEXT NOT NULL, application TEXT NOT NULL, shard INTEGER NOT NULL, epoch INTEGER NOT NULL,
            marker BLOB NOT NULL,
            PRIMARY KEY (dataset, application, shard)
        ) WITHOUT ROWID""",
        """CREATE TABLE dead_letters (
            letter INTEGER PRIMARY KEY AUTOINCREMENT,
            dataset TEXT NOT NULL, application TEXT NOT NULL, shard INTEGER NOT NULL,
            era INTEGER NOT NULL, sequence INTEGER NOT NULL, position_index INTEGER NOT NULL,
            table_name TEXT NOT NULL, operation TEXT NOT NULL, key BLOB, update_ipc BLOB NOT NULL,
            error TEXT NOT NULL, attempts INTEGER NOT NULL, buried_at REAL NOT NULL,
            retrying INTEGER NOT NULL DEFAULT 0,
            UNIQUE (dataset, application, shard, era, sequence, position_index)
        )""",
    ),
)


def open_ledger(folder: Path, *, before_commit: Callable[[], None] | None = None) -> Database:
    """Opens or makes the file; `before_commit` is for tests that hold back its fsync or fill its disk."""
    return Database(folder / FILE_NAME, kind=KIND, migrations=MIGRATIONS, before_commit=before_commit)
