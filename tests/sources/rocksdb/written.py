"""A slow, obvious writer of RocksDB's log format, for logs that no RocksDB at hand writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tailrace.sources.crc32c import masked

BLOCK = 32768


def varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def text(data: bytes) -> bytes:
    return varint(len(data)) + data


def put(key: bytes, value: bytes, family: int = 0) -> bytes:
    head = b"\x05" + varint(family) if family else b"\x01"
    return head + text(key) + text(value)


def write_batch(sequence: int, *entries: bytes, count: int | None = None) -> bytes:
    number = len(entries) if count is None else count
    return sequence.to_bytes(8, "little") + number.to_bytes(4, "little") + b"".join(entries)


def physical(kind: int, payload: bytes, log_number: int | None = None) -> bytes:
    """One physical record; with a log number, of the recyclable kind."""
    checked = bytes([kind]) + (log_number.to_bytes(4, "little") if log_number is not None else b"") + payload
    array = np.frombuffer(checked, dtype=np.uint8)
    stored = int(masked(array.ctypes.data, len(checked)))
    return stored.to_bytes(4, "little") + len(payload).to_bytes(2, "little") + checked


def logical(payload: bytes, at: int, log_number: int | None = None) -> bytes:
    """A logical record that begins at file offset `at`, cut where blocks end."""
    header = 7 if log_number is None else 11
    out = b""
    first = True
    while True:
        room = BLOCK - (at + len(out)) % BLOCK
        if room < header:
            out += bytes(room)
            room = BLOCK
        piece, payload = payload[: room - header], payload[room - header :]
        kind = (1 if not payload else 2) if first else (4 if not payload else 3)
        out += physical(kind + (0 if log_number is None else 4), piece, log_number)
        first = False
        if not payload:
            return out


def log_of(payloads: Iterable[bytes], log_number: int | None = None, begin: bytes = b"") -> bytes:
    out = begin
    for payload in payloads:
        out += logical(payload, len(out), log_number)
    return out


def make_folder(folder: Path, logs: dict[int, bytes], last_sequence: int = 0) -> Path:
    """A folder that looks like a RocksDB with these log files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "IDENTITY").write_text("made-by-hand")
    (folder / "CURRENT").write_text("MANIFEST-000001\n")
    edit = bytes([4]) + varint(last_sequence) + varint(200) + varint(7) + varint(201) + text(b"seven")
    (folder / "MANIFEST-000001").write_bytes(log_of([edit]))
    for number, data in logs.items():
        (folder / f"{number:06}.log").write_bytes(data)
    return folder
