"""The physical layer of a RocksDB log: blocks of 32 KiB, and records that are cut where a block ends.

A physical record is a masked CRC32C, a length of 16 bits, a type byte (files that may be recycled add the low 32 bits
of their log number) and a payload. A logical record is one `full` physical record, or `first`, any number of `middle`
and `last`. A block's last bytes, too few for another header, are zero.

`scan` checks every checksum and joins the pieces of a logical record *in place*: each payload moves down over the
header before it, so that a record becomes contiguous in the buffer that the file was read into, and nothing is copied
to a second one. It folds the checksums of the pieces into one, by which the whole record is told from another. It
stops, with a status that says why, where the bytes end or make no sense; whether that place is the head of the log, its
end or damage is for the caller to judge, who knows what follows.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailrace.sources.crc32c import masked
from tailrace.sources.memory import load8, load16, load32, move
from tailrace.updates.kernels import inlined, kernel

BLOCK_BYTES: Final = 32768
HEADER_BYTES: Final = 7
RECYCLABLE_HEADER_BYTES: Final = 11
FOLD: Final = 31  # a record's checksum is the last piece's plus this times what came before, modulo 2^32

Int64s = npt.NDArray[np.int64]


class Stop(enum.IntEnum):
    """Why `scan` stopped."""

    MORE = 0  # the bytes end in mid-record, or exactly at a record's end
    TABLE_FULL = 1
    CHECKSUM = 2
    LENGTH = 3  # a record that claims to reach beyond its block
    TYPE = 4
    ZERO = 5  # preallocated space
    OLD = 6  # what a recycled file held before
    ORDER = 7  # a middle or last without a first, a first or full inside a record
    SPECIAL = 8  # a record about the log itself: type and payload are in the state


class State(enum.IntEnum):
    """What the words of the scanner's state mean; positions are relative to the buffer."""

    FILL = 0  # where the bytes in the buffer end
    SCAN = 1  # where the next physical record begins
    BASE = 2  # the file offset of the buffer's first byte (true for bytes from SCAN on)
    LOG_NUMBER = 3
    RECYCLED = 4  # whether the file's records are of the recyclable kind
    STARTED = 5  # whether a record was read
    JOINING = 6  # whether a logical record is being joined
    JOIN_START = 7
    JOIN_END = 8
    JOIN_OFFSET = 9  # file offset of its first physical record
    JOIN_CHECKSUM = 10  # the stored checksums of its pieces so far, folded
    RECORDS = 11  # how many records the table holds
    SPECIAL_TYPE = 12
    SPECIAL_START = 13
    SPECIAL_LENGTH = 14
    WORDS = 15


class Record(enum.IntEnum):
    """The columns of the table of logical records."""

    START = 0
    LENGTH = 1
    OFFSET = 2  # in the file
    CHECKSUM = 3  # the stored checksums of its physical records, folded into one; of a `full` one, as it is stored
    COLUMNS = 4


class Special(enum.IntEnum):
    """Record types that describe the log itself; an unknown type with the high bit set may be ignored."""

    COMPRESSION = 9
    TIMESTAMP_SIZES = 10
    TIMESTAMP_SIZES_RECYCLABLE = 11
    PREDECESSOR = 130
    PREDECESSOR_RECYCLABLE = 131
    IGNORABLE = 128


_FILL, _SCAN, _BASE, _LOG_NUMBER = (int(s) for s in (State.FILL, State.SCAN, State.BASE, State.LOG_NUMBER))
_RECYCLED, _STARTED, _JOINING = int(State.RECYCLED), int(State.STARTED), int(State.JOINING)
_JOIN_START, _JOIN_END = int(State.JOIN_START), int(State.JOIN_END)
_JOIN_OFFSET, _JOIN_CHECKSUM = int(State.JOIN_OFFSET), int(State.JOIN_CHECKSUM)
_RECORDS, _SPECIAL_TYPE = int(State.RECORDS), int(State.SPECIAL_TYPE)
_SPECIAL_START, _SPECIAL_LENGTH = int(State.SPECIAL_START), int(State.SPECIAL_LENGTH)
_MORE, _TABLE_FULL, _CHECKSUM, _LENGTH, _TYPE, _ZERO, _OLD, _ORDER, _SPECIAL = (int(s) for s in Stop)
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@inlined
def _is_recyclable(kind: int) -> bool:
    return (5 <= kind <= 8) or kind == 11 or kind == 131


@kernel
def _check(address: int, scan: int, state: Any) -> tuple[int, int, int]:
    """(status, header bytes, payload bytes) of the physical record at `scan`, of which 7 bytes are there."""
    at = address + scan
    length = load16(at + 4)
    kind = load8(at + 6)
    room = BLOCK_BYTES - (state[_BASE] + scan) % BLOCK_BYTES
    if kind == 0 and length == 0:
        return _ZERO, 0, 0
    header = HEADER_BYTES
    if _is_recyclable(kind):
        header = RECYCLABLE_HEADER_BYTES
    elif kind > 10 and kind < 128:
        return _TYPE, header, length
    if header + length > room:
        return _LENGTH, header, length
    if header == RECYCLABLE_HEADER_BYTES and scan + header <= state[_FILL]:
        if load32(at + 7) != (state[_LOG_NUMBER] & 0xFFFFFFFF):
            return _OLD, header, length
        if state[_STARTED] and not state[_RECYCLED]:
            return _TYPE, header, length
    if scan + header + length > state[_FILL]:
        return _MORE, header, length
    if masked(at + 6, header - 6 + length) != load32(at):
        return _CHECKSUM, header, length
    return -1, header, length


@kernel
def scan(address: int, state: Any, records: Any) -> int:
    """Appends the logical records in the buffer at `address` to the table; returns why it stopped."""
    count = state[_RECORDS]
    capacity = records.shape[0]
    at = state[_SCAN]
    status = _MORE
    while True:
        room = BLOCK_BYTES - (state[_BASE] + at) % BLOCK_BYTES
        if room < HEADER_BYTES:
            if at + room > state[_FILL]:
                break
            at += room
        if at + HEADER_BYTES > state[_FILL]:
            break
        if count == capacity:
            status = _TABLE_FULL
            break
        kind = load8(address + at + 6)
        if state[_RECYCLED] and room >= HEADER_BYTES and room < RECYCLABLE_HEADER_BYTES:
            # A recycled file pads its blocks where the longer header does not fit.
            if at + room > state[_FILL]:
                break
            at += room
            continue
        outcome, header, length = _check(address, at, state)
        if outcome >= 0:
            status = outcome
            break
        if header == RECYCLABLE_HEADER_BYTES:
            state[_RECYCLED] = 1
        payload = at + header
        stored = load32(address + at)
        if kind > 8:
            state[_SPECIAL_TYPE] = kind
            state[_SPECIAL_START] = payload
            state[_SPECIAL_LENGTH] = length
            at = payload + length
            status = _SPECIAL
            break
        if kind > 4:
            kind -= 4
        if kind <= _FIRST:
            if state[_JOINING] and state[_JOIN_END] > state[_JOIN_START]:
                status = _ORDER
                break
            state[_STARTED] = 1
            state[_JOINING] = kind == _FIRST
            state[_JOIN_START] = payload
            state[_JOIN_END] = payload + length
            state[_JOIN_OFFSET] = state[_BASE] + at
            state[_JOIN_CHECKSUM] = stored
        else:
            if not state[_JOINING]:
                status = _ORDER
                break
            move(address + state[_JOIN_END], address + payload, length)
            state[_JOIN_END] += length
            state[_JOIN_CHECKSUM] = (FOLD * state[_JOIN_CHECKSUM] + stored) & 0xFFFFFFFF
        at = payload + length
        if kind in (_FULL, _LAST):
            records[count, 0] = state[_JOIN_START]
            records[count, 1] = state[_JOIN_END] - state[_JOIN_START]
            records[count, 2] = state[_JOIN_OFFSET]
            records[count, 3] = state[_JOIN_CHECKSUM]
            count += 1
            state[_JOINING] = 0
    state[_SCAN] = at
    state[_RECORDS] = count
    return status
