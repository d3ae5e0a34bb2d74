"""The files that the checker reads: what was sent and answered, and what each subscriber received.

Both hold records of a fixed size, appended with one `os.write` each time and read as numpy arrays. A process that is
killed inside a write may leave part of a record: whoever opens the file again cuts that part off, and the checker
ignores it. Nothing is lost by that, since a subscriber acknowledges only after its write has returned.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Records = npt.NDArray[np.void]

SENT: Final = 1  # noted before the write leaves, so that whatever arrives was noted
ACKNOWLEDGED: Final = 2
WRITE_RECORD: Final = np.dtype([("kind", "<i4"), ("shard", "<i4"), ("number", "<i8"), ("checksum", "<u4")])

STARTED: Final = 1  # a subscriber's process began
RECEIVED: Final = 2
DAMAGED: Final = 3  # an update whose content does not match its own checksum, or is not of this run
LOSS_NOTICE: Final = 4
DELIVERY_RECORD: Final = np.dtype(
    [
        ("kind", "<i4"),
        ("shard", "<i4"),
        ("number", "<i8"),
        ("at_ns", "<i8"),
        ("sequence", "<i8"),
        ("era", "<i4"),
        ("checksum", "<u4"),
        ("session", "<u8"),  # in which it came
    ]
)


class RecordFile:
    """Appends records. One process and thread writes one file."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        os.ftruncate(self._file, size - size % dtype.itemsize)

    def append(self, rows: Sequence[tuple[int, ...]]) -> None:
        """Returns once the rows are with the operating system: from then on they survive this process."""
        data = np.array(rows, dtype=self._dtype).tobytes()
        written = os.write(self._file, data)
        assert written == len(data), f"{written} of {len(data)} bytes were written; is the disk full?"

    def close(self) -> None:
        os.close(self._file)


def started_row() -> tuple[int, ...]:
    return (STARTED, 0, 0, time.monotonic_ns(), 0, 0, 0, 0)


def read_records(path: Path, dtype: np.dtype[Any]) -> Records:
    """All whole records; none if the file is not there yet."""
    if not path.exists():
        return np.empty(0, dtype)
    data = path.read_bytes()
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)


class RecordCounter:
    """Counts the records of one kind in a file that grows, reading each part once."""

    def __init__(self, path: Path, dtype: np.dtype[Any], kind: int) -> None:
        self._path = path
        self._dtype = dtype
        self._kind = kind
        self._read_bytes = 0
        self._count = 0

    def count(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
            records = np.frombuffer(data, self._dtype, len(data) // self._dtype.itemsize)
            self._read_bytes += records.nbytes
            self._count += int((records["kind"] == self._kind).sum())
        return self._count
