"""What the value of an entry is, and how much of the Arrow columns it will take.

A value in the pairs codec (`updates.pairs`) that adds up exactly and whose names are text becomes its pairs, and a
wide-column entity becomes its columns. Any other value is foreign, and becomes the one pair `value`.
"""

from __future__ import annotations

import enum
from typing import Final

from tailrace.sources.memory import load8, load16, load32, load64
from tailrace.sources.rocksdb.tags import BLOB_INDEX, DELETION, MERGING, RANGING, WIDE, varint
from tailrace.updates.kernels import inlined, kernel

CODEC_MAGIC: Final = 0x015054F5
_NULL: Final = 0xFFFFFFFF


class Kind(enum.IntEnum):
    """What the bytes of a row's value are; with `MERGE` set, its operation is `merge`."""

    FOREIGN = 0
    CODEC = 1
    ENTITY = 2  # wide columns
    BLOB = 3  # a reference into a blob file of the stacked BlobDB
    DELETE = 4
    RANGE = 5  # the value is the end key
    MERGE = 8


_K_FOREIGN, _K_CODEC, _K_ENTITY, _K_BLOB, _K_DELETE, _K_RANGE, _K_MERGE = (int(k) for k in Kind)


@kernel
def is_utf8(at: int, end: int) -> bool:
    """Whether the bytes are valid UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    while at < end:
        if end - at >= 8 and (load64(at) & -0x7F7F7F7F7F7F7F80) == 0:
            at += 8
            continue
        first = load8(at)
        if first < 0x80:
            at += 1
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if end - at <= more:
            return False
        second = load8(at + 1)
        low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
        high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
        if second < low or second > high:
            return False
        for i in range(2, more + 1):
            if (load8(at + i) & 0xC0) != 0x80:
                return False
        at += more + 1
    return True


@kernel
def codec_shape(at: int, size: int) -> tuple[int, int, int]:
    """(pairs, bytes of their names, NULL values) of a value in the pairs codec; pairs of -1: foreign."""
    if size < 6 or load32(at) != CODEC_MAGIC:
        return -1, 0, 0
    pairs = load16(at + 4)
    table = at + 6
    names = table + 6 * pairs
    if 6 + 6 * pairs > size:
        return -1, 0, 0
    name_bytes = 0
    value_bytes = 0
    nulls = 0
    for i in range(pairs):
        entry = table + 6 * i
        name_bytes += load16(entry)
        length = load32(entry + 2)
        if length == _NULL:
            nulls += 1
        else:
            value_bytes += length
    if 6 + 6 * pairs + name_bytes + value_bytes != size:
        return -1, 0, 0
    ascii_only = True
    name = names
    names_end = names + name_bytes
    while names_end - name >= 8:
        if (load64(name) & -0x7F7F7F7F7F7F7F80) != 0:
            ascii_only = False
            break
        name += 8
    while ascii_only and name < names_end:
        ascii_only = load8(name) < 128
        name += 1
    if not ascii_only:
        name = names
        for i in range(pairs):
            length = load16(table + 6 * i)
            if not is_utf8(name, name + length):
                return -1, 0, 0
            name += length
    return pairs, name_bytes, nulls


@kernel
def entity_shape(at: int, size: int) -> tuple[int, int, int]:
    """(columns, bytes of their names, bytes of their values) of a wide-column entity; columns of -1: not one.

    Version u32 = 1, count, then per column name and value size, then all values; the numbers are varints. The default
    column has an empty name and becomes the pair `value`.
    """
    end = at + size
    version, at = varint(at, end)
    if at < 0 or version != 1:
        return -1, 0, 0
    count, at = varint(at, end)
    if at < 0:
        return -1, 0, 0
    name_bytes = 0
    value_bytes = 0
    for _ in range(count):
        length, at = varint(at, end)
        if at < 0 or length > end - at or not is_utf8(at, at + length):
            return -1, 0, 0
        name_bytes += length if length else 5
        length, at = varint(at + length, end)
        if at < 0:
            return -1, 0, 0
        value_bytes += length
    if value_bytes != end - at:
        return -1, 0, 0
    return count, name_bytes, value_bytes


@kernel
def value_shape(shape: int, value: int, size: int) -> tuple[int, int, int, int, int]:
    """(kind, pairs, bytes of names, bytes of values, NULLs) of what a data entry holds."""
    if shape == DELETION:
        return _K_DELETE, 0, 0, 0, 0
    if shape == RANGING:
        return _K_RANGE, 1, 3, size, 0
    if shape == BLOB_INDEX:
        return _K_BLOB, 1, 10, size, 0
    if shape == WIDE:
        pairs, name_bytes, value_bytes = entity_shape(value, size)
        if pairs >= 0:
            return _K_ENTITY, pairs, name_bytes, value_bytes, 0
        return _K_FOREIGN, 1, 5, size, 0
    pairs, name_bytes, nulls = codec_shape(value, size)
    kind = _K_CODEC if pairs >= 0 else _K_FOREIGN
    if shape == MERGING:
        kind |= _K_MERGE
    if pairs >= 0:
        return kind, pairs, name_bytes, size - 6 - 6 * pairs - name_bytes, nulls
    return kind, 1, 5, size, 0


@inlined
def operation_bit(kind: int) -> int:
    if kind & _K_MERGE:
        return 2
    if kind == _K_DELETE:
        return 4
    return 8 if kind == _K_RANGE else 1
