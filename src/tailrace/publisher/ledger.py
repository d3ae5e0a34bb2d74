"""The file in which a publisher keeps what must outlive it: markers, who has the flows, dead letters.

Each dataset in it has one owner, the one with the greatest epoch. Every write names its owner's epoch within the
transaction that makes it, so that a publisher which was stopped for longer than its claim lasted cannot write over what
its successor has written since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tailrace.errors import Fenced
from tailrace.runtime.sqlite import Database, Transaction

FILE_NAME: Final = "publisher.sqlite"
KIND: Final = "publisher"
MIGRATIONS: Final = (
    (
        "CREATE TABLE owners (dataset TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE markers (
            dataset TEXT NOT NULL, application TEXT NOT NULL, shard INTEGER NOT NULL, marker BLOB NOT NULL,
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
    (
        """CREATE TABLE holders (
            dataset TEXT NOT NULL, application TEXT NOT NULL, subscriber TEXT NOT NULL,
            PRIMARY KEY (dataset, application)
        ) WITHOUT ROWID""",
    ),
)


class Ledger(Database):
    """An open file, and the epochs in which this process owns datasets in it."""

    def __init__(self, path: Path, before_commit: Callable[[], None] | None = None) -> None:
        super().__init__(path, kind=KIND, migrations=MIGRATIONS, before_commit=before_commit)
        self._epochs: dict[str, int] = {}

    def own(self, dataset: str, claimed: int) -> int:
        """Makes the caller the dataset's owner; returns its epoch, greater than every earlier owner's.

        That is the epoch of its claim, unless whatever counts claims has lost its memory.
        """
        with self.transaction() as transaction:
            epoch = max(claimed, _owner(transaction, dataset) + 1)
            transaction.execute("INSERT OR REPLACE INTO owners (dataset, epoch) VALUES (?, ?)", (dataset, epoch))
        self._epochs[dataset] = epoch
        return epoch

    @contextmanager
    def writing(self, dataset: str) -> Iterator[Transaction]:
        """A transaction of the dataset's owner; `Fenced` if there is a newer one."""
        epoch = self._epochs[dataset]
        with self.transaction() as transaction:
            newest = _owner(transaction, dataset)
            if newest != epoch:
                raise Fenced(what=f"epoch {epoch} of {dataset!r}", reason=f"its owner's epoch is {newest}")
            yield transaction


def _owner(transaction: Transaction, dataset: str) -> int:
    found = transaction.read_one("SELECT epoch FROM owners WHERE dataset = ?", (dataset,))
    return int(found[0]) if found else 0


def open_ledger(folder: Path, *, before_commit: Callable[[], None] | None = None) -> Ledger:
    """Opens or makes the file; `before_commit` is for tests that hold back its fsync or fill its disk."""
    return Ledger(folder / FILE_NAME, before_commit)
