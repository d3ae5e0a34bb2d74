"""A lease as a small file that its owner keeps open: how the processes of one machine know that another one lives.

The file holds the moment at which the lease runs out, on the machine's monotonic clock. The owner overwrites these
eight bytes to renew: that allocates no disk space, so that a full disk costs nobody a lease, and waits for no fsync.
The owner also holds the file's lock, which the kernel drops when the process dies, so that a death is seen before the
lease has run out.

A lease must not end in another's eyes while its owner believes in it, wherever either of them is paused. Who finds it
run out first writes a mark beside the moment, then reads the moment again. The owner writes the moment first and then
reads the mark: if it is there, the renewal did not count. So whatever moment the finder reads after its mark is the
last that the owner can believe in, and the lease ends once that has passed.
"""

from __future__ import annotations

import fcntl
import math
import os
import struct
from pathlib import Path

_MOMENT = struct.Struct("<d")
_MARK_AT = _MOMENT.size
_MARK = b"\x01"


class LeaseFile:
    """The owner's side."""

    def __init__(self, path: Path, ends_at: float) -> None:
        self.path = path
        self.ends_at = ends_at
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._file, _MOMENT.pack(ends_at) + b"\x00", 0)
        except BaseException:
            os.close(self._file)
            raise

    def renew(self, now: float, lease_s: float) -> bool:
        """Prolongs the lease from `now`, taken before the call; False if it has ended, which is for good."""
        if now >= self.ends_at:
            return False
        ends_at = max(self.ends_at, now + lease_s)
        os.pwrite(self._file, _MOMENT.pack(ends_at), 0)
        if os.pread(self._file, 1, _MARK_AT) == _MARK:
            return False
        self.ends_at = ends_at
        return True

    def exists(self) -> bool:
        """Whether others can still find the file."""
        return os.fstat(self._file).st_nlink > 0

    def close(self) -> None:
        """Gives the lease up: from now on it counts as ended."""
        self.path.unlink(missing_ok=True)
        os.close(self._file)


def has_ended(path: Path, now: float) -> bool:
    """Whether the lease at `path` is over for good; if it has run out, this makes it so."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if _is_unlocked(file):
            return True
        if _moment(file) > now:
            return False
        os.pwrite(file, _MARK, _MARK_AT)
        return _moment(file) <= now
    finally:
        os.close(file)


def _is_unlocked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two who look do not deceive each other
    except BlockingIOError:
        return False
    return True


def _moment(file: int) -> float:
    """Until when the lease runs; without an end while its holder is just making the file."""
    written = os.pread(file, _MOMENT.size, 0)
    if len(written) < _MOMENT.size:
        return math.inf
    moment: float = _MOMENT.unpack(written)[0]
    return moment
