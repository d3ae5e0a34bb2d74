"""The store's folder: what it is, that it is ours, and that what its log holds is on the disk.

`tailrace-store.json` stands beside RocksDB's own files and says the format version and what is fixed for the store's
life. It is written before RocksDB makes its first file, so a folder with RocksDB files but without it belongs to
someone else.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from pathlib import Path
from typing import Final

from tailrace.errors import ConfigInvalid, StoreFailed, VersionTooNew
from tailrace.runtime.clock import Clock

FORMAT_VERSION: Final = 1
FORMAT_FILE: Final = "tailrace-store.json"
SAFE_FILE: Final = "tailrace-safe.txt"

_log = logging.getLogger(__name__)


def claim_folder(path: Path, shards: int) -> None:
    """Makes the folder a store's, or checks that it is one that this binary and this configuration may open."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        known = path / FORMAT_FILE
        if known.exists():
            _require_same(known, shards)
        elif (path / "CURRENT").exists():
            reason = (
                f"holds a RocksDB that no Tailrace store made ({FORMAT_FILE} is missing); to read it use rocksdb://"
            )
            raise StoreFailed(path=str(path), reason=reason)
        else:
            _write_durably(known, json.dumps({"format": FORMAT_VERSION, "shards": shards}).encode() + b"\n")
    except OSError as error:
        raise StoreFailed(path=str(path), reason=f"{error}; make the folder one that this user may write") from error


def _require_same(known: Path, shards: int) -> None:
    try:
        said = json.loads(known.read_bytes())
        version, fixed = int(said["format"]), int(said["shards"])
    except (ValueError, KeyError, TypeError) as error:
        reason = f"{FORMAT_FILE} cannot be understood ({error}); restore it from a backup"
        raise StoreFailed(path=str(known.parent), reason=reason) from error
    if version > FORMAT_VERSION:
        raise VersionTooNew(what=f"store {known.parent}", found=version, known=FORMAT_VERSION)
    if fixed != shards:
        reason = f"{shards}, but the store in {known.parent} was made with {fixed}, which is fixed for its life"
        raise ConfigInvalid(path="store.shards", reason=reason)


def sync_log(path: Path) -> None:
    """Fsyncs every log file that is there, live or archived, and the folders that name them.

    After a crash the files may hold records that were written but never fsynced. RocksDB replays them all the same, so
    they must be on the disk before anyone is told that they are.
    """
    for folder in (path, path / "archive"):
        if folder.is_dir():
            for file in sorted(folder.glob("*.log")):
                _sync(file)
            _sync(folder)


def identity_of(path: Path) -> str:
    """RocksDB's own identity of this database; it survives checkpoints and copies."""
    return (path / "IDENTITY").read_text().strip()


def free_bytes(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


class SafeNote:
    """Remembers, roughly, up to where the log was safe, so that a log which lost answered writes is noticed.

    RocksDB ends its replay in silence where a log file is damaged. The note is written seldom and never fsynced: it may
    lie behind, which only makes the check weaker, and never ahead, as it is written after the log's fsync.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = path / SAFE_FILE
        self._clock = clock
        self._due = clock.monotonic()
        self._written = 0

    def require(self, latest_sequence: int) -> None:
        noted = self._read()
        if latest_sequence < noted:
            reason = (
                f"its log ends at sequence {latest_sequence}, though everything up to {noted} had been made safe: a log"
                f" file is damaged or gone; restore a backup, or remove {SAFE_FILE} to go on with what is left"
            )
            raise StoreFailed(path=str(self._file.parent), reason=reason)

    def write(self, safe_through: int, *, now: bool = False) -> None:
        """Notes it, unless that was done within the last second."""
        if safe_through == self._written or (not now and self._clock.monotonic() < self._due):
            return
        self._due = self._clock.monotonic() + 1.0
        self._written = safe_through
        draft = self._file.with_suffix(".draft")
        try:
            draft.write_text(f"1 {safe_through} {_check(safe_through)}\n")
            draft.rename(self._file)
        except OSError as error:
            _log.warning("%s could not be written: %s", self._file, error)

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)

    def _read(self) -> int:
        """0 if there is none, or a power cut left half of it."""
        if not self._file.exists():
            return 0
        words = self._file.read_text(errors="replace").split()
        if len(words) != 3 or not all(word.isdigit() for word in words):
            return 0
        version, noted, check = map(int, words)
        if version > 1:
            raise VersionTooNew(what=str(self._file), found=version, known=1)
        return noted if check == _check(noted) else 0


def _check(noted: int) -> int:
    return zlib.crc32(str(noted).encode())


def _write_durably(path: Path, content: bytes) -> None:
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    _sync(draft)
    draft.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
