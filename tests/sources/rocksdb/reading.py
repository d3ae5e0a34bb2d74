"""Reading a log in tests, and the rows that a test expects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tailrace.sources.interface import LogBatch
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.updates.position import START, Position
from tailrace.updates.schema import UPDATE_SCHEMA

LINE = "line"
ERA = 3
WAIT_S = 15.0


class Row(NamedTuple):
    """What the tests compare of an update."""

    sequence: int
    table: str
    operation: str
    key: bytes
    pairs: tuple[tuple[str, bytes | None], ...] | None


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch, which is also checked from top to bottom."""
    batch.validate(full=True)
    assert batch.schema == UPDATE_SCHEMA
    columns = [batch.column(name).to_pylist() for name in ("sequence", "table", "operation", "key", "pairs")]
    return [
        Row(sequence, table, operation, key, None if pairs is None else tuple(pairs))
        for sequence, table, operation, key, pairs in zip(*columns, strict=True)
    ]


def rows_of_text(text: str) -> list[Row]:
    """What the C++ program printed."""
    rows = []
    for line in text.splitlines():
        sequence, table, operation, key, *pairs = line.split("\t")
        named = [pair.split("=") for pair in pairs]
        found = tuple((bytes.fromhex(name).decode(), bytes.fromhex(value)) for name, value in named)
        rows.append(Row(int(sequence), table, operation, bytes.fromhex(key), None if operation == "delete" else found))
    return rows


def source_of(folder: Path, **options: Any) -> RocksDBSource:
    return RocksDBSource(folder, **{"line": LINE, "era": ERA, "shards": 1, **options})


@contextmanager
def reading(source: RocksDBSource, after: Position = START, **options: Any) -> Iterator[Iterator[LogBatch]]:
    """An iterator of batches that is stopped in the end."""
    stop = threading.Event()
    batches = source.read(after, stop=stop, **options)
    try:
        yield batches
    finally:
        stop.set()
        for _ in batches:
            pass


def read_through(source: RocksDBSource, sequence: int, after: Position = START, **options: Any) -> list[LogBatch]:
    """Batches up to the one that reaches `sequence`."""
    found = []
    with reading(source, after, **options) as batches:
        for batch in batches:
            found.append(batch)
            if batch.through.sequence >= sequence:
                break
    return found


def all_rows(source: RocksDBSource, after: Position = START, **options: Any) -> list[Row]:
    """Everything that is there now."""
    through = source.bounds().through.sequence
    if through <= after.sequence:
        return []
    return [row for batch in read_through(source, through, after, **options) for row in rows_of(batch.updates)]


class InThread:
    """Reads in a thread until `wanted` rows came or an error did; `rows` is safe to look at after `join`."""

    def __init__(self, source: RocksDBSource, wanted: int, after: Position = START) -> None:
        self.rows: list[Row] = []
        self.error: Exception | None = None
        self.first = threading.Event()
        self.stop = threading.Event()
        self._wanted = wanted
        self._thread = threading.Thread(target=self._run, args=(source, after), name="test-reader")
        self._thread.start()

    def _run(self, source: RocksDBSource, after: Position) -> None:
        try:
            for batch in source.read(after, stop=self.stop):
                self.rows.extend(rows_of(batch.updates))
                self.first.set()
                if len(self.rows) >= self._wanted:
                    return
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def join(self) -> list[Row]:
        self._thread.join(WAIT_S)
        hanging = self._thread.is_alive()
        self.stop.set()
        self._thread.join(WAIT_S)
        if self.error is not None:
            raise self.error
        assert not hanging, f"only {len(self.rows)} of {self._wanted} rows came"
        return self.rows
