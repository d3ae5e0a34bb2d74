"""One datastore's log as a whole: which file comes after which, where a sequence number lies, where the log ends.

Shared by all readers of a source. It keeps no descriptors; what it remembers (the first sequence number of a file, the
names of column families) is remembered under a lock.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.errors import LogTruncated
from tailrace.sources.rocksdb.blocks import BLOCK_BYTES
from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.entries import Family
from tailrace.sources.rocksdb.files import LogFile, list_logs, open_log
from tailrace.sources.rocksdb.index import Entry, PositionIndex
from tailrace.sources.rocksdb.manifest import read_manifest
from tailrace.sources.rocksdb.tags import BATCH_HEADER_BYTES
from tailrace.updates.header import HEADER_FAMILY

PEEK_BYTES: Final = 2 * BLOCK_BYTES


class Families(NamedTuple):
    """Column families as kernels see them: by id, (index of the name or `Family`, bytes of timestamp in each key)."""

    table: npt.NDArray[np.int64]
    names: pa.Array[Any]


class Start(NamedTuple):
    """Where a reader begins, and the sequence that the first record there has (negative: any)."""

    cursor: LogCursor
    expected: int


class Log:
    def __init__(self, folder: Path, wal_dir: Path, index: PositionIndex, line: str) -> None:
        self.folder = folder
        self.wal_dir = wal_dir
        self.index = index
        self.line = line
        self._lock = threading.Lock()
        self._firsts: dict[tuple[int, int], int] = {}
        self._names: dict[int, str] = {}
        self._families: Families | None = None

    # ---- files ----------------------------------------------------------------------------------------------------

    def files(self) -> list[LogFile]:
        return list_logs(self.wal_dir)

    def open(self, file: LogFile) -> tuple[int, LogFile] | None:
        """A descriptor of the file wherever it is now; None if it was deleted."""
        opened = open_log(self.wal_dir, file)
        return None if opened is None else (opened[0], LogFile(file.number, opened[1]))

    def first_sequence(self, file: LogFile) -> int | None:
        """What the file's first whole record begins with; None if there is no such record (yet), or no file."""
        opened = self.open(file)
        if opened is None:
            return None
        descriptor, file = opened
        key = (file.number, os.fstat(descriptor).st_ino)
        with self._lock:
            known = self._firsts.get(key)
        if known is not None:
            os.close(descriptor)
            return known
        cursor = LogCursor(descriptor, file, 0, PEEK_BYTES)
        try:
            while not cursor.available:
                if not cursor.advance():
                    return None
            payload = cursor.plain_payload(0)
        finally:
            cursor.close()
        if len(payload) < BATCH_HEADER_BYTES:
            return None
        sequence = int.from_bytes(payload[:8], "little")
        with self._lock:
            self._firsts[key] = sequence
        return sequence

    def successor(self, number: int) -> tuple[LogFile, int] | None:
        """The next file that holds a record, and the sequence that it begins with."""
        for file in self.files():
            if file.number > number:
                first = self.first_sequence(file)
                if first is not None:
                    return file, first
        return None

    # ---- places ---------------------------------------------------------------------------------------------------

    def start(self, after: int, read_bytes: int) -> Start | None:
        """A cursor at or before the first record that holds something after `after`; None if there is no file."""
        files = self.files()
        oldest: int | None = None
        for file in reversed(files):
            first = self.first_sequence(file)
            if first is None:
                continue
            if first <= after + 1:
                start = self._start_in(file, after, read_bytes)
                if start is not None:
                    return start
                break
            oldest = first
        if oldest is not None:
            raise self.truncated(after, oldest - 1)
        floor = read_manifest(self.folder).last_sequence
        if after < floor:
            raise self.truncated(after, floor)
        for file in files:
            opened = self.open(file)
            if opened is not None:
                return Start(LogCursor(*opened, 0, read_bytes), after + 1)
        return None

    def _start_in(self, file: LogFile, after: int, read_bytes: int) -> Start | None:
        """A cursor in `file`: at an indexed record, if the index still tells the truth, else at the beginning."""
        entry = self.index.before(after + 1, file.number)
        for offset in (entry.offset if entry else 0, 0):
            opened = self.open(file)
            if opened is None:
                return None
            cursor = LogCursor(*opened, offset, read_bytes)
            if offset == 0 or (entry is not None and self._holds(cursor, entry)):
                return Start(cursor, -1)
            cursor.close()
            self.index.forget(file.number)
        return None

    @staticmethod
    def _holds(cursor: LogCursor, entry: Entry) -> bool:
        while not cursor.available:
            if not cursor.advance():
                return False
        _start, _length, offset, checksum = cursor.records[0].tolist()
        return bool(
            offset == entry.offset
            and checksum == entry.checksum
            and int.from_bytes(cursor.plain_payload(0)[:8], "little") == entry.sequence
        )

    def oldest(self) -> int:
        """Everything after this sequence is there."""
        for file in self.files():
            first = self.first_sequence(file)
            if first is not None:
                return first - 1
        return read_manifest(self.folder).last_sequence

    def truncated(self, after: int, oldest: int) -> LogTruncated:
        return LogTruncated(line=self.line, after=after, oldest=oldest)

    # ---- column families ------------------------------------------------------------------------------------------

    def families(self) -> Families:
        with self._lock:
            if self._families is None:
                self._load_families()
            assert self._families is not None
            return self._families

    def families_with(self, unknown: int) -> Families:
        """The families, read again because a record names one that is not known.

        A family that was dropped and is no longer in the MANIFEST has lost its name; its updates are delivered under
        its number.
        """
        with self._lock:
            self._load_families()
            if unknown not in self._names:
                self._names[unknown] = f"column_family:{unknown}"
                self._arrange()
            assert self._families is not None
            return self._families

    def _load_families(self) -> None:
        self._names.update(read_manifest(self.folder).families)
        self._arrange()

    def _arrange(self) -> None:
        table = np.full((max(self._names) + 1, 2), int(Family.UNKNOWN), dtype=np.int64)
        table[:, 1] = 0
        tables: list[str] = []
        for number, name in sorted(self._names.items()):
            if name == HEADER_FAMILY:
                table[number, 0] = int(Family.HEADER)
            else:
                table[number, 0] = len(tables)
                tables.append(name)
        self._families = Families(table, pa.array(tables, pa.string()))
