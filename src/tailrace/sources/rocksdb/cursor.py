"""Walks the logical records of a log, from file to file, through one buffer that is read into again and again.

`advance` drops what was taken, reads more, and scans it. The table `records` then holds the records that are there;
`stop` says why the scan ended. What a stop means depends on what follows: at the end of the newest file it is the head;
in a file that has a successor it is the end of the file, or damage. `judge` decides that.
"""

from __future__ import annotations

import os
from typing import Final, Literal

import numpy as np

from tailrace.errors import LogCorrupt, LogUnreadable
from tailrace.sources.rocksdb.blocks import BLOCK_BYTES, Record, Special, State, Stop, scan
from tailrace.sources.rocksdb.compression import decompressed
from tailrace.sources.rocksdb.files import LogFile

RECORDS_AT_ONCE: Final = 1 << 14
MAX_RECORD_BYTES: Final = 1 << 31  # what a logical record may take; RocksDB's own limit on a write batch is 4 GiB
_SLACK_BYTES: Final = 2 * BLOCK_BYTES

_COMPRESSIONS: Final[dict[int, Literal["zstd"] | None]] = {0: None, 7: "zstd"}


class LogCursor:
    """A place in one log file, and the records that were read from there on."""

    def __init__(self, descriptor: int, file: LogFile, offset: int, read_bytes: int) -> None:
        self.file = file
        self.records = np.zeros((RECORDS_AT_ONCE, Record.COLUMNS), dtype=np.int64)
        self.taken = 0
        self.stop = Stop.MORE
        self.timestamp_sizes: dict[int, int] = {}
        self._descriptor = descriptor
        self._read_bytes = read_bytes
        self._buffer = np.empty(read_bytes + _SLACK_BYTES, dtype=np.uint8)
        self._view = self._buffer.data
        self._state = np.zeros(State.WORDS, dtype=np.int64)
        self._compression: Literal["zstd"] | None = None
        self.at_end = False
        self._begin(file, offset)

    def _begin(self, file: LogFile, offset: int) -> None:
        self.file = file
        self.taken = 0
        self._state[:] = 0
        self._state[State.BASE] = offset
        self._state[State.LOG_NUMBER] = file.number
        self._compression = None
        self.timestamp_sizes = {}

    def switch(self, descriptor: int, file: LogFile) -> None:
        """Goes on at the start of another file; the buffer stays."""
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._begin(file, 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def address(self) -> int:
        """Where the buffer lies: record starts are relative to it."""
        return self._buffer.ctypes.data

    @property
    def available(self) -> int:
        """How many records are there to take."""
        return int(self._state[State.RECORDS])

    @property
    def offset(self) -> int:
        """The file offset of the first byte that belongs to no record yet."""
        if self._state[State.JOINING]:
            return int(self._state[State.JOIN_OFFSET])
        return self.scan_offset

    @property
    def scan_offset(self) -> int:
        return int(self._state[State.BASE] + self._state[State.SCAN])

    @property
    def torn(self) -> bool:
        """Whether there are bytes after the last whole record."""
        return bool(self._state[State.JOINING]) or int(self._state[State.FILL]) > int(self._state[State.SCAN])

    @property
    def recycled(self) -> bool:
        return bool(self._state[State.RECYCLED])

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    @property
    def joining(self) -> bool:
        """Whether the last physical record that was read begins or continues one whose end has not come."""
        return bool(self._state[State.JOINING])

    def payload(self, record: int) -> bytes:
        start, length = self.records[record, :2].tolist()
        return self._buffer[start : start + length].tobytes()

    def head_of(self, record: int, size: int) -> bytes:
        start = int(self.records[record, Record.START])
        return self._buffer[start : start + size].tobytes()

    def read_at(self, offset: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def skip_to(self, offset: int) -> None:
        """Leaves out bytes that hold nothing, up to a later block."""
        for word in (State.SCAN, State.FILL, State.RECORDS):
            self._state[word] = 0
        self.taken = 0
        self._state[State.BASE] = offset

    def advance(self) -> bool:
        """Reads and scans more; whether it got further. Records that were not taken stay.

        Bytes that made no sense are read again, as the writer may have been about to overwrite them.
        """
        place = self.scan_offset
        if self.stop not in (Stop.MORE, Stop.TABLE_FULL) or self.recycled:
            self._state[State.FILL] = self._state[State.SCAN]
        self._compact()
        self._read()
        self.stop = Stop(scan(self.address, self._state, self.records))
        while self.stop == Stop.SPECIAL:
            self._special()
            self.stop = Stop(scan(self.address, self._state, self.records))
        return self.scan_offset != place or (self.stop == Stop.MORE and not self.at_end)

    def _compact(self) -> None:
        """Moves what is still needed to the buffer's start."""
        state = self._state
        left = self.available - self.taken
        if left:
            self.records[:left] = self.records[self.taken : self.available]
        state[State.RECORDS] = left
        self.taken = 0
        if left:
            keep = int(self.records[0, Record.START])
        else:
            keep = int(state[State.JOIN_START] if state[State.JOINING] else state[State.SCAN])
        fill = int(state[State.FILL])
        if keep == 0:
            return
        self._buffer[: fill - keep] = self._buffer[keep:fill]
        self.records[:left, Record.START] -= keep
        for word in (State.FILL, State.SCAN, State.JOIN_START, State.JOIN_END):
            state[word] -= keep
        state[State.BASE] += keep

    def _read(self) -> None:
        state = self._state
        fill = int(state[State.FILL])
        wanted = self._read_bytes - fill
        if wanted < BLOCK_BYTES:  # a record that is longer than the buffer, or many that nobody took
            if self.available:
                self.at_end = False
                return
            wanted = max(fill, BLOCK_BYTES)
            self._grow(fill + wanted + _SLACK_BYTES)
        try:
            read = os.preadv(self._descriptor, [self._view[fill : fill + wanted]], int(state[State.BASE]) + fill)
        except OSError as error:
            raise LogUnreadable(path=str(self.file.path), reason=str(error)) from error
        state[State.FILL] = fill + read
        self.at_end = read < wanted

    def _grow(self, size: int) -> None:
        if size <= len(self._buffer):
            return
        if size > MAX_RECORD_BYTES:
            reason = f"a record of more than {MAX_RECORD_BYTES} bytes"
            raise LogCorrupt(path=str(self.file.path), offset=self.offset, reason=reason)
        grown = np.empty(size, dtype=np.uint8)
        fill = int(self._state[State.FILL])
        grown[:fill] = self._buffer[:fill]
        self._buffer = grown
        self._view = grown.data

    def _special(self) -> None:
        """A record that describes the log itself."""
        kind = int(self._state[State.SPECIAL_TYPE])
        start, length = int(self._state[State.SPECIAL_START]), int(self._state[State.SPECIAL_LENGTH])
        payload = self._buffer[start : start + length].tobytes()
        offset = int(self._state[State.BASE]) + start
        if kind == Special.COMPRESSION:
            number = int.from_bytes(payload[:4], "little")
            if number not in _COMPRESSIONS:
                reason = f"the log is compressed with method {number}, which is not known"
                raise LogCorrupt(path=str(self.file.path), offset=offset, reason=reason)
            self._compression = _COMPRESSIONS[number]
        elif kind in (Special.TIMESTAMP_SIZES, Special.TIMESTAMP_SIZES_RECYCLABLE):
            for at in range(0, length - 5, 6):
                family = int.from_bytes(payload[at : at + 4], "little")
                self.timestamp_sizes[family] = int.from_bytes(payload[at + 4 : at + 6], "little")

    def plain_payload(self, record: int) -> bytes:
        """A record's write batch, decompressed where the log is compressed."""
        payload = self.payload(record)
        if self._compression is None:
            return payload
        try:
            return decompressed(payload, self._compression)
        except OSError as error:
            offset = int(self.records[record, Record.OFFSET])
            raise LogCorrupt(path=str(self.file.path), offset=offset, reason=f"decompression: {error}") from error

    @property
    def compressed(self) -> bool:
        return self._compression is not None
