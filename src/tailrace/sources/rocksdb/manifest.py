"""Names of column families, from a RocksDB folder's CURRENT and MANIFEST files.

A log names column families by number. The MANIFEST is a log in the same physical format as the WAL; its records are
version edits: tagged fields, of which those about families are read here and the others are stepped over. CURRENT
holds the name of the live MANIFEST and is replaced when a new one is begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tailrace.errors import LogCorrupt, LogUnreadable
from tailrace.sources.rocksdb.blocks import Record, State, Stop, scan

_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _COMPACT_CURSOR, _DELETED_FILE, _NEW_FILE = range(1, 8)
_PREVIOUS_LOG, _MIN_LOG = 9, 10
_NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4 = 100, 102, 103
_FAMILY, _FAMILY_ADD, _FAMILY_DROP, _MAX_FAMILY = 200, 201, 202, 203
_ATOMIC_GROUP = 300
_IGNORABLE = 1 << 13
_BLOB_ADDITIONS, _BLOB_GARBAGES = (400, _IGNORABLE + 2), (401, _IGNORABLE + 3)
_WAL_ADDITION, _WAL_DELETION = _IGNORABLE + 4, _IGNORABLE + 5  # of old versions: fields without a length before them
_FAMILY_ATTEMPTS: Final = 5  # CURRENT may be replaced, and the old MANIFEST removed, between two reads


@dataclass(slots=True)
class Manifest:
    """What the MANIFEST says. Dropped families keep their names: the log may still hold their updates."""

    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    last_sequence: int = 0


class _Fields:
    """Reads the fields of one version edit."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def skip_varints(self, count: int) -> None:
        for _ in range(count):
            self.varint()

    def text(self) -> bytes:
        size = self.varint()
        value = self._data[self._at : self._at + size]
        if len(value) < size:
            raise IndexError(self._at)
        self._at += size
        return value

    def tagged(self, last: int) -> None:
        """Custom fields: (tag, text) until the tag `last`."""
        while self.varint() != last:
            self.text()

    def wal_addition(self) -> None:
        """A file number, then (tag, number) until tag 1."""
        self.varint()
        while self.varint() != 1:
            self.varint()


def _skip(fields: _Fields, tag: int) -> bool:
    """Steps over a field that says nothing about families; False if the tag is unknown."""
    match tag:
        case _ if tag == _COMPARATOR:
            fields.text()
        case _ if tag in (_LOG_NUMBER, _NEXT_FILE, _PREVIOUS_LOG, _MIN_LOG, _MAX_FAMILY, _ATOMIC_GROUP):
            fields.varint()
        case _ if tag == _COMPACT_CURSOR:
            fields.varint()
            fields.text()
        case _ if tag == _DELETED_FILE:
            fields.skip_varints(2)
        case _ if tag in (_NEW_FILE, _NEW_FILE_2, _NEW_FILE_3, _NEW_FILE_4):
            fields.skip_varints(4 if tag == _NEW_FILE_3 else 3)
            fields.text()
            fields.text()
            fields.skip_varints(0 if tag == _NEW_FILE else 2)
            if tag == _NEW_FILE_4:
                fields.tagged(1)
        case _ if tag in _BLOB_ADDITIONS:
            fields.skip_varints(3)
            fields.text()
            fields.text()
            fields.tagged(0)
        case _ if tag in _BLOB_GARBAGES:
            fields.skip_varints(3)
            fields.tagged(0)
        case _ if tag == _WAL_ADDITION:
            fields.wal_addition()
        case _ if tag == _WAL_DELETION:
            fields.varint()
        case _ if tag & _IGNORABLE:
            fields.text()
        case _:
            return False
    return True


def _apply(manifest: Manifest, edit: bytes) -> int:
    """Applies one version edit; returns an unknown tag, or 0."""
    fields = _Fields(edit)
    family = 0
    while fields.more():
        tag = fields.varint()
        if tag == _FAMILY:
            family = fields.varint()
        elif tag == _FAMILY_ADD:
            manifest.families[family] = fields.text().decode("utf-8", "backslashreplace")
        elif tag == _FAMILY_DROP:
            continue
        elif tag == _LAST_SEQUENCE:
            manifest.last_sequence = max(manifest.last_sequence, fields.varint())
        elif not _skip(fields, tag):
            return tag
    return 0


def parse_manifest(path: Path, data: bytes) -> Manifest:
    buffer = np.frombuffer(data, dtype=np.uint8).copy()
    state = np.zeros(State.WORDS, dtype=np.int64)
    state[State.FILL] = len(buffer)
    state[State.LOG_NUMBER] = int(path.name.partition("-")[2])
    records = np.zeros((256, Record.COLUMNS), dtype=np.int64)
    manifest = Manifest()
    while True:
        state[State.RECORDS] = 0
        status = scan(buffer.ctypes.data, state, records)
        for start, length, offset, _checksum in records[: state[State.RECORDS]].tolist():
            try:
                unknown = _apply(manifest, buffer[start : start + length].tobytes())
            except IndexError:
                raise LogCorrupt(path=str(path), offset=offset, reason="a version edit ends in mid-field") from None
            if unknown:
                raise LogCorrupt(path=str(path), offset=offset, reason=f"version edit with unknown tag {unknown}")
        if status == Stop.MORE:
            return manifest
        if status not in (Stop.TABLE_FULL, Stop.SPECIAL):
            reason = f"no version edit can be read here ({Stop(status).name.lower()})"
            raise LogCorrupt(path=str(path), offset=int(state[State.SCAN]), reason=reason)


def read_manifest(folder: Path) -> Manifest:
    """The families of the datastore in `folder`."""
    for _ in range(_FAMILY_ATTEMPTS):
        try:
            name = (folder / "CURRENT").read_text().strip()
            path = folder / name
            data = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LogUnreadable(path=str(folder), reason=str(error)) from error
        return parse_manifest(path, data)
    raise LogUnreadable(path=str(folder), reason="no CURRENT file that names a MANIFEST: not a RocksDB folder")
