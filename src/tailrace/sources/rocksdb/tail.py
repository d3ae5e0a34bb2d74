"""What it means that no further record can be read at a place in a log file.

In the newest file such a place is the head of the log, whatever stands there, until bytes follow it. A file that has a
successor with records ends there, cleanly if nothing stands there; a torn tail ends it only if the successor begins
with the following sequence number. Everything else is damage, and an error with its address.

Recycled files hold older records behind the live ones, cut wherever the newer end happens to lie. So in them only a
valid record of the same file in a later block proves that a place was damaged.
"""

from __future__ import annotations

import enum
from typing import Final

from tailrace.errors import LogCorrupt, LogDiverged, LogError
from tailrace.sources.rocksdb.blocks import BLOCK_BYTES, HEADER_BYTES, RECYCLABLE_HEADER_BYTES, Stop
from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.log import Log

_REASONS: Final = {
    Stop.MORE: "the file ends in mid-record",
    Stop.CHECKSUM: "checksum mismatch",
    Stop.LENGTH: "a record that claims to reach beyond its block",
    Stop.TYPE: "a record of unknown type",
    Stop.ZERO: "zero bytes where a record should be",
    Stop.OLD: "a record of an older log",
    Stop.ORDER: "a piece of a record without the pieces before it",
}


class Verdict(enum.Enum):
    HEAD = "head"  # nothing more is there; wait
    ONWARD = "onward"  # the cursor was moved: go on


def judge(log: Log, cursor: LogCursor, expected: int) -> Verdict:
    """Called when the cursor has no records left and cannot read on: waits, goes on to the next file, or raises."""
    status = cursor.status()
    if status.st_size < cursor.scan_offset:
        raise log.truncated(expected - 1, _oldest_or(log, expected - 1))
    if cursor.stop == Stop.ZERO and _skips_padding(cursor, status.st_size):
        return Verdict.ONWARD
    following = log.successor(cursor.file.number)
    if following is None:
        if status.st_nlink == 0:
            _refuse_replaced(log, cursor, expected)
        _refuse_damage(cursor, status.st_size)
        return Verdict.HEAD
    if cursor.advance():  # the file grew before its successor was begun
        return Verdict.ONWARD
    file, first = following
    if _is_torn(cursor) and first != expected:
        if all(known.number != cursor.file.number for known in log.files()):
            raise log.truncated(expected - 1, log.oldest())  # recycled under this reader
        reason = f"{_REASONS[cursor.stop]}, and {file.path.name} begins with sequence {first}, not {expected}"
        raise LogCorrupt(path=str(cursor.file.path), offset=cursor.offset, reason=reason)
    opened = log.open(file)
    if opened is None:  # archived away and deleted in this moment; look again
        return Verdict.ONWARD
    cursor.switch(*opened)
    return Verdict.ONWARD


def _oldest_or(log: Log, default: int) -> int:
    try:
        return log.oldest()
    except LogError:
        return default


def _is_torn(cursor: LogCursor) -> bool:
    if cursor.stop == Stop.ZERO:
        return cursor.joining
    return cursor.torn


def _refuse_replaced(log: Log, cursor: LogCursor, expected: int) -> None:
    """The file is gone and nothing came after it: the datastore was wiped, and perhaps made anew."""
    numbers = [file.number for file in log.files()]
    if numbers and max(numbers) < cursor.file.number:
        reason = f"{cursor.file.path.name} is gone, and the newest file now is number {max(numbers)}"
        raise LogDiverged(line=log.line, marker=expected - 1, reason=reason)


def _refuse_damage(cursor: LogCursor, size: int) -> None:
    """In the newest file: what cannot be read is damage once something follows it."""
    place = cursor.scan_offset
    block_end = place - place % BLOCK_BYTES + BLOCK_BYTES
    if cursor.stop == Stop.MORE:
        return
    if cursor.recycled or cursor.stop == Stop.OLD:
        damaged = _is_record(cursor, block_end)
    elif cursor.stop == Stop.ZERO:
        damaged = any(cursor.read_at(place, min(block_end, size) - place))
    else:
        header = cursor.read_at(place, HEADER_BYTES)
        end = place + HEADER_BYTES + int.from_bytes(header[4:6], "little")
        damaged = size > min(end, block_end)
    if damaged:
        raise LogCorrupt(path=str(cursor.file.path), offset=cursor.scan_offset, reason=_REASONS[cursor.stop])


def _is_record(cursor: LogCursor, offset: int) -> bool:
    """Whether a valid record of this very file begins at `offset`."""
    header = cursor.read_at(offset, RECYCLABLE_HEADER_BYTES)
    if len(header) < RECYCLABLE_HEADER_BYTES:
        return False
    number = (cursor.file.number & 0xFFFFFFFF).to_bytes(4, "little")
    return 5 <= header[6] <= 8 and header[7:11] == number


def _skips_padding(cursor: LogCursor, size: int) -> bool:
    """RocksDB pads a block early to keep some records whole: zeros up to the block's end, then another record."""
    place = cursor.scan_offset
    block_end = place - place % BLOCK_BYTES + BLOCK_BYTES
    if cursor.joining or size < block_end + HEADER_BYTES:
        return False
    if any(cursor.read_at(place, block_end - place)) or not any(cursor.read_at(block_end, HEADER_BYTES)):
        return False
    cursor.skip_to(block_end)
    return True
