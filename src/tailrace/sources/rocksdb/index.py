"""A sparse map from sequence numbers to places in the log, so that a reader need not scan from a file's start.

Readers note a record about once a megabyte of log. An entry names the sequence that the record begins with, the file's
number, the offset and the record's checksum, by which a stale entry is noticed when it is used. The map is
saved atomically, with the datastore's identity; a file that is missing, damaged, or speaks of another datastore is
simply an empty map, as it can be rebuilt from the log at any time.
"""

from __future__ import annotations

import bisect
import logging
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tailrace.errors import LogUnreadable, VersionTooNew
from tailrace.sources.crc32c import checksum_of

SPACING_BYTES: Final = 3 << 18  # below the usual batch, at whose end a reader notes where it is
SAVE_EVERY: Final = 256  # entries
MAX_ENTRIES: Final = 1 << 20  # a terabyte of log; the oldest go first
FORMAT_VERSION: Final = 1
_MAGIC: Final = b"TRPI"
_LOGGER: Final = logging.getLogger(__name__)


class Entry(NamedTuple):
    sequence: int
    number: int
    offset: int
    checksum: int


class PositionIndex:
    """Shared by all readers of one source."""

    def __init__(self, path: Path | None, identity: str) -> None:
        self._path = path
        self._identity = identity
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._latest: Entry | None = None
        self._unsaved = 0
        if path is not None:
            self._entries = self._load(path)

    def note(self, entry: Entry) -> None:
        """A reader took the record at `entry`."""
        with self._lock:
            if self._latest is None or entry.sequence >= self._latest.sequence:
                self._latest = entry
            at = bisect.bisect_right(self._entries, entry)
            for near in self._entries[max(at - 1, 0) : at + 1]:
                if near.number == entry.number and abs(entry.offset - near.offset) < SPACING_BYTES:
                    return
            if entry.offset < SPACING_BYTES:
                return
            self._entries.insert(at, entry)
            del self._entries[: max(len(self._entries) - MAX_ENTRIES, 0)]
            self._unsaved += 1
            due = self._unsaved % SAVE_EVERY == 0
        if due:
            self._save_in_passing()

    def _save_in_passing(self) -> None:
        """A reader goes on where the index cannot be saved (a full disk): a later run only starts further back."""
        try:
            self.save()
        except LogUnreadable as error:
            _LOGGER.warning("%s", error)

    def before(self, sequence: int, number: int) -> Entry | None:
        """The last known record of file `number` that begins at or before `sequence`."""
        with self._lock:
            latest = self._latest
            if latest is not None and latest.number == number and latest.sequence <= sequence:
                return latest
            at = bisect.bisect_right(self._entries, (sequence, 2**63, 0, 0))
            if at and self._entries[at - 1].number == number:
                return self._entries[at - 1]
        return None

    @property
    def latest(self) -> Entry | None:
        """The furthest record that any reader took in this run."""
        with self._lock:
            return self._latest

    def forget(self, number: int) -> None:
        """Entries of this file turned out to be stale."""
        with self._lock:
            self._entries = [entry for entry in self._entries if entry.number != number]
            if self._latest is not None and self._latest.number == number:
                self._latest = None

    def __len__(self) -> int:
        return len(self._entries)

    def save(self) -> None:
        """Writes the map beside its old version, then replaces it.

        Nothing waits for the disk: after a power cut the checksum tells whether the map is whole.
        """
        if self._path is None:
            return
        with self._lock:
            if not self._unsaved:
                return
            body = msgspec.msgpack.encode((self._identity, self._entries))
            head = _MAGIC + FORMAT_VERSION.to_bytes(4, "little") + checksum_of(body).to_bytes(4, "little")
            temporary = self._path.with_suffix(".new")
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with open(temporary, "wb") as file:
                    file.write(head + body)
                os.replace(temporary, self._path)
            except OSError as error:
                raise LogUnreadable(
                    path=str(self._path), reason=f"the position index cannot be saved: {error}"
                ) from error
            self._unsaved = 0

    def _load(self, path: Path) -> list[Entry]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LogUnreadable(path=str(path), reason=str(error)) from error
        if len(data) < 12 or data[:4] != _MAGIC:
            return []
        version = int.from_bytes(data[4:8], "little")
        if version > FORMAT_VERSION:
            raise VersionTooNew(what=str(path), found=version, known=FORMAT_VERSION)
        if checksum_of(data[12:]) != int.from_bytes(data[8:12], "little"):
            return []
        identity, entries = msgspec.msgpack.decode(data[12:], type=tuple[str, list[Entry]])
        return entries if identity == self._identity else []
