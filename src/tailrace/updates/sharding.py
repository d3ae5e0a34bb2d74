"""Which shard an update belongs to: XXH64 (seed 0) of its shard columns, modulo the number of shards.

What is hashed is every shard column's value after its length as four little-endian bytes; NULL is the length
0xFFFFFFFF and nothing after it. So ('ab', 'c') and ('a', 'bc') differ, and so do '' and NULL. The hash is unsigned.
`shard_vectors.json` next to the tests holds examples for implementations in other languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tailrace.updates.buffers import BytesColumn
from tailrace.updates.kernels import (
    Bytes,
    Flags,
    Int32s,
    Int64s,
    Number,
    copy_bytes,
    inlined,
    kernel,
    load_u32,
    load_u64,
)

NULL_LENGTH = 0xFFFFFFFF
_PRIME1 = np.uint64(0x9E3779B185EBCA87)
_PRIME2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME3 = np.uint64(0x165667B19E3779F9)
_PRIME4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME5 = np.uint64(0x27D4EB2F165667C5)
_MASK = (1 << 64) - 1
_LANES = np.array(
    [(int(_PRIME1) + int(_PRIME2)) & _MASK, int(_PRIME2), 0, -int(_PRIME1) & _MASK],
    np.uint64,
)


def shard_of(values: Sequence[bytes | str | None], shards: int) -> int:
    """The shard of one row, from its shard columns' values."""
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(NULL_LENGTH.to_bytes(4, "little"))
            continue
        data = value.encode() if isinstance(value, str) else value
        parts.append(len(data).to_bytes(4, "little"))
        parts.append(data)
    laid_out = np.frombuffer(b"".join(parts), np.uint8)
    return int(_hash_one(laid_out)) % shards


def shards_of(columns: Sequence[Any], shards: int) -> Int32s:
    """The shard of every row, from Arrow arrays of strings or bytes: one array per shard column."""
    return shards_of_buffers([BytesColumn.of(column) for column in columns], shards)


def shards_of_buffers(columns: Sequence[BytesColumn], shards: int) -> Int32s:
    """As `shards_of`, over raw buffers."""
    if not columns:
        raise ValueError("a row is sharded by one column at least")
    if shards < 1:
        raise ValueError(f"a dataset has one shard at least, not {shards}")
    rows = len(columns[0])
    lengths = np.full(rows, 4 * len(columns), np.int64)
    for column in columns:
        held = (column.offsets[1:] - column.offsets[:-1]).astype(np.int64)
        lengths += held if column.valid is None else np.where(column.valid, held, 0)
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    laid_out = np.empty(int(starts[-1]), np.uint8)
    cursors = starts[:-1].copy()
    for column in columns:
        valid = np.zeros(0, np.bool_) if column.valid is None else column.valid
        _append(laid_out, cursors, column.offsets, column.data, valid)
    return _hash_rows(laid_out, starts, shards)


@kernel
def _append(laid_out: Bytes, cursors: Int64s, offsets: Int32s, data: Bytes, valid: Flags) -> None:
    for row in range(len(cursors)):
        at = cursors[row]
        if len(valid) and not valid[row]:
            laid_out[at : at + 4] = 255
            cursors[row] = at + 4
            continue
        start = np.int64(offsets[row])
        length = np.int64(offsets[row + 1]) - start
        for byte in range(4):
            laid_out[at + byte] = (length >> (8 * byte)) & 0xFF
        copy_bytes(laid_out, at + 4, data, start, length)
        cursors[row] = at + 4 + length


@kernel
def _hash_rows(laid_out: Bytes, starts: Int64s, shards: int) -> Int32s:
    found = np.empty(len(starts) - 1, np.int32)
    for row in range(len(found)):
        found[row] = xxh64(laid_out, starts[row], starts[row + 1]) % np.uint64(shards)
    return found


@kernel
def _hash_one(data: Bytes) -> Number:
    return xxh64(data, 0, len(data))


@inlined
def _rotated(word: Number, bits: int) -> Number:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inlined
def _round(lane: Number, word: Number) -> Number:
    return _rotated(lane + word * _PRIME2, 31) * _PRIME1


@inlined
def _merged(state: Number, lane: Number) -> Number:
    return (state ^ _round(np.uint64(0), lane)) * _PRIME1 + _PRIME4


@kernel
def xxh64(data: Bytes, start: Number, end: Number) -> Number:
    """XXH64 with seed 0 of data[start:end]; other kernels call it on bytes that they lay out themselves."""
    at = start
    if end - start >= 32:
        a, b, c, d = _LANES[0], _LANES[1], _LANES[2], _LANES[3]
        while at + 32 <= end:
            a = _round(a, load_u64(data, at))
            b = _round(b, load_u64(data, at + 8))
            c = _round(c, load_u64(data, at + 16))
            d = _round(d, load_u64(data, at + 24))
            at += 32
        state = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
        state = _merged(_merged(_merged(_merged(state, a), b), c), d)
    else:
        state = _PRIME5
    state += np.uint64(end - start)
    while at + 8 <= end:
        state = _rotated(state ^ _round(np.uint64(0), load_u64(data, at)), 27) * _PRIME1 + _PRIME4
        at += 8
    if at + 4 <= end:
        state = _rotated(state ^ (np.uint64(load_u32(data, at)) * _PRIME1), 23) * _PRIME2 + _PRIME3
        at += 4
    while at < end:
        state = _rotated(state ^ (np.uint64(data[at]) * _PRIME5), 11) * _PRIME1
        at += 1
    state = (state ^ (state >> np.uint64(33))) * _PRIME2
    state = (state ^ (state >> np.uint64(29))) * _PRIME3
    return state ^ (state >> np.uint64(32))
