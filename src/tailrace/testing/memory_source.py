"""A log in memory, for tests of what stands on the `Source` interface. It can be truncated, forked and made to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa

from tailrace.errors import LogBehind, LogDiverged, LogTruncated, TailraceError
from tailrace.sources.interface import Address, Bounds, LogBatch
from tailrace.sources.limits import BATCH_BYTES
from tailrace.updates.position import START, Checkpoint, Marker, Position, Witness
from tailrace.updates.schema import UPDATE_SCHEMA


def rows(sequences: range, *, era: int = 0, shards: int = 1, size_bytes: int = 10) -> pa.RecordBatch:
    """One update per sequence number; the shard is the sequence number modulo `shards`."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "shard": sequence % shards,
                "era": era,
                "sequence": sequence,
                "index": 0,
                "committed_at": sequence * 1000,
                "table": "t",
                "operation": "put",
                "key": b"k%d" % sequence,
                "pairs": [("n", str(sequence).encode()), ("pad", b"x" * size_bytes)],
            }
            for sequence in sequences
        ],
        schema=UPDATE_SCHEMA,
    )


class MemorySource:
    """Sequences 1, 2, 3, ... appended in batches; a batch is read as it was appended."""

    def __init__(self, line: str = "memory", *, era: int = 0, shards: int = 1, history: int = 1) -> None:
        self.line = line
        self.era = era
        self.shards = shards
        self.history = history  # the witness of every record: another history has another one
        self.reads = 0
        self._changed = threading.Condition()
        self._batches: list[LogBatch] = []
        self._oldest = START
        self._head = 0
        self._failure: tuple[Position, TailraceError] | None = None

    def append(self, count: int, *, size_bytes: int = 10) -> Position:
        with self._changed:
            updates = rows(
                range(self._head + 1, self._head + count + 1), era=self.era, shards=self.shards, size_bytes=size_bytes
            )
            self._head += count
            through = Position(self.era, self._head)
            checkpoint = Checkpoint(through, Witness("", self.history))
            self._batches.append(LogBatch(updates, checkpoint, updates.nbytes, at_head=True))
            self._changed.notify_all()
            return through

    def truncate(self, through: Position) -> None:
        """Forgets everything up to `through`."""
        with self._changed:
            self._batches = [batch for batch in self._batches if batch.through > through]
            self._oldest = through
            self._changed.notify_all()

    def fail_after(self, position: Position, error: TailraceError | None) -> None:
        """Reading past `position` raises; None heals."""
        with self._changed:
            self._failure = (position, error) if error else None
            self._changed.notify_all()

    def bounds(self) -> Bounds:
        return Bounds(self._oldest, Position(self.era, self._head) if self._head else self._oldest)

    def locate(self, marker: Marker) -> Address:
        position, witness = marker.checkpoint
        if position < self._oldest:
            raise LogTruncated(line=self.line, after=str(position), oldest=str(self._oldest))
        if position.sequence > self._head:
            raise LogBehind(line=self.line, marker=str(position), head=str(self.bounds().through))
        if witness is not None and witness.checksum != self.history:
            raise LogDiverged(line=self.line, marker=str(position), reason="another checksum stands there")
        return Address("memory", position.sequence)

    def read(self, after: Position, *, stop: threading.Event, max_batch_bytes: int = BATCH_BYTES) -> Iterator[LogBatch]:
        self.reads += 1
        while not stop.is_set():
            with self._changed:
                if after < self._oldest:
                    raise LogTruncated(line=self.line, after=str(after), oldest=str(self._oldest))
                if self._failure and after >= self._failure[0]:
                    raise self._failure[1]
                batch = next((batch for batch in self._batches if batch.through > after), None)
                if batch is None:
                    self._changed.wait(0.02)
                    continue
            after = batch.through
            yield batch

    def close(self) -> None:
        """Nothing to close."""
