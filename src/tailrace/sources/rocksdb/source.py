"""A RocksDB folder as a source of updates: reads the write-ahead log from outside the process that writes it.

Each `read` walks the log with a cursor of its own: read and scan a piece, measure what whole records fit a batch, fill
the batch. At the head it sleeps until the horizon or the folder reports a commit. Positions are RocksDB's sequence
numbers; a checkpoint's witness is the checksum of the record that holds the position: what the log stores for its
physical records, folded into one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Final, Literal

from tailrace.errors import LogBehind, LogDiverged
from tailrace.sources.interface import Address, Bounds, Horizon, LogBatch
from tailrace.sources.limits import BATCH_BYTES
from tailrace.sources.rocksdb.decoding import Decoder
from tailrace.sources.rocksdb.files import identity
from tailrace.sources.rocksdb.index import PositionIndex
from tailrace.sources.rocksdb.log import Log
from tailrace.sources.rocksdb.places import find, head
from tailrace.sources.rocksdb.reader import Reader
from tailrace.sources.rocksdb.wake import Waker
from tailrace.updates.position import Checkpoint, Marker, Position, Witness

POLL_S: Final = 0.5  # in case a file system reports no changes


class RocksDBSource:
    """The log of the RocksDB in `path`. Safe to use from several threads; each `read` is independent.

    `horizon` is the embedded store's; without one everything in the log counts as safe. `index_dir` keeps the position
    index between runs. `on_gap='notice'` delivers a gap as a batch that carries a `Lost`, and goes on. `decoder` turns
    values that are not in the pairs codec into pairs. `wal_dir` is where the log lies if not beside the data.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        line: str,
        era: int,
        shards: int,
        horizon: Horizon | None = None,
        index_dir: str | os.PathLike[str] | None = None,
        poll_s: float = POLL_S,
        on_gap: Literal["stop", "notice"] = "stop",
        decoder: Decoder | None = None,
        wal_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.line = line
        self.era = era
        self.shards = shards
        self.path = Path(path)
        self._horizon = horizon
        self._poll_s = poll_s
        self._on_gap = on_gap
        self._decoder = decoder
        index_file = Path(index_dir) / "positions.index" if index_dir is not None else None
        self._index = PositionIndex(index_file, identity(self.path))
        self._log = Log(self.path, Path(wal_dir) if wal_dir is not None else self.path, self._index, line)

    def bounds(self) -> Bounds:
        """Everything after `after`, up to and with `through`, can be read now. A horizon saves looking."""
        if self._horizon is not None:
            after = self._log.oldest()
            through = max(self._horizon.safe_through(), after)
        else:
            after, through = head(self._log)
        return Bounds(Position(self.era, after), Position(self.era, through))

    def locate(self, marker: Marker) -> Address:
        """Where reading after `marker` starts.

        `LogTruncated` if what follows it is gone; `LogDiverged` if another record stands there now; `LogBehind`, a
        `LogDiverged`, if the log ends before it: the caller knows whether that is a lagging replica or a lost tail.
        """
        return self._verified(marker.checkpoint)

    def _verified(self, checkpoint: Checkpoint) -> Address:
        sequence = checkpoint.position.sequence
        place = find(self._log, sequence)
        if not place.reached:
            _oldest, end = head(self._log)
            raise LogBehind(line=self.line, marker=str(checkpoint.position), head=str(Position(self.era, end)))
        expected = checkpoint.witness
        if expected is not None and place.checksum is not None and place.checksum != expected.checksum:
            reason = f"{place.path} at offset {place.offset} holds another record"
            raise LogDiverged(line=self.line, marker=str(checkpoint.position), reason=reason)
        return Address(str(place.path), place.next_offset)

    def checkpoint(self, position: Position) -> Checkpoint:
        """`position` with the witness that stands in the log now; None where the record is gone or never was."""
        place = find(self._log, position.sequence)
        return Checkpoint(position, Witness("", place.checksum) if place.checksum is not None else None)

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = BATCH_BYTES) -> Iterator[LogBatch]:
        """Everything after `after`, in log order; blocks at the head; ends soon after `stop` is set."""
        reader = Reader(
            self._log,
            era=self.era,
            shards=self.shards,
            after=after.sequence,
            max_batch_bytes=max_batch_bytes,
            notice_gaps=self._on_gap == "notice",
            decoder=self._decoder,
        )
        return self._batches(reader, stop)

    def _batches(self, reader: Reader, stop: Event) -> Iterator[LogBatch]:
        with Waker(self._log.wal_dir, self._horizon, self._poll_s) as waker, reader:
            while not stop.is_set():
                batch = reader.step(waker.safe_through())
                if batch is not None:
                    yield batch
                if batch is None or waker.knows_nothing_after(reader.through):
                    waker.wait(reader.through, stop)

    def close(self) -> None:
        """Saves the position index. Iterators that still run are stopped by their own `stop`."""
        self._index.save()
