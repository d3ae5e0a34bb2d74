"""Dead letters: updates that an application could not process, kept for a person to look at and try again.

A letter holds the whole update as an Arrow IPC stream of one row, so that trying it again needs no log. Burying is
durable before it is answered, and burying the same update twice keeps one letter. Letters marked for another try are
handed to the application's subscriber; what it processed is deleted, what failed again is buried again with one more
attempt. So `buried_at` is the time of the last attempt.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from tailrace.errors import NotFound, ProtocolMismatch
from tailrace.publisher.ledger import Ledger
from tailrace.publisher.stream import Letters
from tailrace.runtime.clock import Clock
from tailrace.runtime.sqlite import Row
from tailrace.updates.position import Position
from tailrace.updates.schema import UPDATE_SCHEMA, concat_updates
from tailrace.wire.messages import DeadLetter

_BURY: Final = """
    INSERT INTO dead_letters (dataset, application, shard, era, sequence, position_index, table_name, operation, key,
        update_ipc, error, attempts, buried_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET table_name = excluded.table_name, operation = excluded.operation, key = excluded.key,
        update_ipc = excluded.update_ipc, error = excluded.error, attempts = excluded.attempts,
        buried_at = excluded.buried_at, retrying = 0"""
_COLUMNS: Final = """letter, dataset, application, shard, era, sequence, position_index, table_name, operation, key,
    error, attempts, buried_at, retrying"""
_OF: Final = "dataset = ? AND application = ?"


class DeadLetters:
    """Letters of all applications of one publisher."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    def bury(self, dataset: str, application: str, updates: bytes, errors: Sequence[str], attempts: int) -> int:
        """Adds letters, one per row of the IPC stream; returns how many are new."""
        rows = _rows(updates)
        if rows.num_rows != len(errors):
            raise ProtocolMismatch(reason=f"{rows.num_rows} dead letters came with {len(errors)} errors")
        now = self._clock.wall()
        before = self.count(dataset, application)
        with self._ledger.writing(dataset) as transaction:
            for row, error in enumerate(errors):
                one = rows.slice(row, 1)
                shard, era, sequence, index = (one.column(name)[0].as_py() for name in UPDATE_SCHEMA.names[:4])
                table, operation, key = (one.column(name)[0].as_py() for name in ("table", "operation", "key"))
                place = (shard, era, sequence, index, table, operation, key)
                transaction.execute(_BURY, (dataset, application, *place, to_ipc(one), error, attempts, now))
        return self.count(dataset, application) - before

    def count(self, dataset: str, application: str) -> int:
        found = self._ledger.read_one(f"SELECT count(*) FROM dead_letters WHERE {_OF}", (dataset, application))
        return int(found[0]) if found else 0

    def list(self, dataset: str, application: str, limit: int) -> tuple[builtins.list[DeadLetter], int]:
        """The oldest letters, and how many there are in all."""
        rows = self._ledger.read(
            f"SELECT {_COLUMNS} FROM dead_letters WHERE {_OF} ORDER BY letter LIMIT ?", (dataset, application, limit)
        )
        return [_letter(row) for row in rows], self.count(dataset, application)

    def show(self, dataset: str, application: str, letter: int) -> tuple[DeadLetter, bytes]:
        found = self._ledger.read_one(
            f"SELECT {_COLUMNS}, update_ipc FROM dead_letters WHERE {_OF} AND letter = ?",
            (dataset, application, letter),
        )
        if found is None:
            raise NotFound(what="dead letter", name=str(letter), remedy=f"see: tailrace dead list {application}")
        return _letter(found[:-1]), found[-1]

    def retry(self, dataset: str, application: str, letters: builtins.list[int] | None) -> builtins.list[int]:
        """Marks letters (all of them for None) for another try; returns those marked."""
        chosen = f"SELECT letter FROM dead_letters WHERE {_OF} AND retrying = 0 ORDER BY letter"
        with self._ledger.writing(dataset) as transaction:
            there = [row[0] for row in transaction.read(chosen, (dataset, application))]
            marked = there if letters is None else sorted(set(there) & set(letters))
            transaction.execute_many(
                "UPDATE dead_letters SET retrying = 1 WHERE letter = ?", [(one,) for one in marked]
            )
        if letters is not None and not marked:
            shown = ", ".join(map(str, letters))
            raise NotFound(what="dead letter", name=shown, remedy=f"see: tailrace dead list {application}")
        return marked

    def retrying(self, dataset: str, application: str, batch: int) -> Iterator[Letters]:
        """What is marked for another try, for a subscriber that has just been given the flows."""
        rows = self._ledger.read(
            f"SELECT letter FROM dead_letters WHERE {_OF} AND retrying = 1 ORDER BY letter", (dataset, application)
        )
        return self.load(dataset, application, [row[0] for row in rows], batch)

    def load(self, dataset: str, application: str, letters: builtins.list[int], batch: int) -> Iterator[Letters]:
        """Letters with their updates, at most `batch` at a time."""
        for start in range(0, len(letters), batch):
            numbers = letters[start : start + batch]
            marks = ",".join("?" * len(numbers))
            rows = self._ledger.read(
                f"SELECT letter, update_ipc FROM dead_letters WHERE {_OF} AND letter IN ({marks}) ORDER BY letter",
                (dataset, application, *numbers),
            )
            if rows:
                updates = concat_updates([_rows(row[1]) for row in rows])
                yield Letters(tuple(row[0] for row in rows), updates)

    def settle(self, dataset: str, application: str, done: Sequence[int], failed: Mapping[int, str]) -> int:
        """Deletes what was processed and counts another attempt of what failed; returns how many are gone."""
        now = self._clock.wall()
        with self._ledger.writing(dataset) as transaction:
            gone = sum(
                transaction.execute(f"DELETE FROM dead_letters WHERE {_OF} AND letter = ?", (dataset, application, one))
                for one in done
            )
            for letter, error in failed.items():
                transaction.execute(
                    f"UPDATE dead_letters SET retrying = 0, attempts = attempts + 1, error = ?, buried_at = ? "
                    f"WHERE {_OF} AND letter = ?",
                    (error, now, dataset, application, letter),
                )
        return gone


def _letter(row: Row) -> DeadLetter:
    letter, dataset, application, shard, era, sequence, index, table, operation, key, error, attempts, at, retrying = (
        row
    )
    return DeadLetter(
        letter=letter,
        dataset=dataset,
        application=application,
        shard=shard,
        position=Position(era, sequence, index),
        table=table,
        operation=operation,
        key=key or b"",
        error=error,
        attempts=attempts,
        buried_at=at,
        state="retrying" if retrying else "dead",
    )


def _rows(updates: bytes) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(updates) as reader:
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise ProtocolMismatch(reason=f"dead letters are not an Arrow IPC stream: {error}") from error
    if table.schema != UPDATE_SCHEMA:
        raise ProtocolMismatch(reason="dead letters are not in the update schema")
    return concat_updates(table.to_batches())


def to_ipc(updates: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, UPDATE_SCHEMA) as writer:
        writer.write_batch(updates)
    return sink.getvalue().to_pybytes()
