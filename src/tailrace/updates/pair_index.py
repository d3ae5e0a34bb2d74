"""Where in each row the pair of a given name lies.

Neighbouring rows of a log mostly hold the same names in the same order: they have the same *shape*. Whether all rows
of a batch have one shape is seen by comparing its names with themselves, one row further on. Otherwise one pass over
the batch numbers the shapes; after it, finding a name takes a look at each shape, and one addition per row. A batch of
more than `MAX_SHAPES` shapes is searched row by row for each name, in the slot of the row before first.

Names within one row are distinct: a repeated name may be found at any of its places.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tailrace.updates.buffers import BytesColumn, offsets_of, valid_of
from tailrace.updates.kernels import Bytes, Flags, Int32s, Number, inlined, kernel, load_u64, same_bytes

MAX_SHAPES: Final = 64
_ALL_PRESENT: Flags = np.zeros(0, np.bool_)


class PairIndex:
    """The pairs of a batch's rows, found by name. A place counts in the flat `keys` and `values`; -1 is absent."""

    def __init__(self, pairs: pa.MapArray[Any, Any]) -> None:
        self._rows = len(pairs)
        self.offsets = offsets_of(pairs, pairs.buffers()[1])
        self.keys = BytesColumn.of(pairs.keys)
        self.items = pairs.items
        valid = valid_of(pairs)
        self.present = _ALL_PRESENT if valid is None else valid

    @cached_property
    def values(self) -> BytesColumn:
        return BytesColumn.of(self.items)

    def places(self, name: str) -> Int32s:
        """Where each row's pair called `name` lies, or -1."""
        wanted = np.frombuffer(name.encode(errors="surrogatepass"), np.uint8)
        if self._rows == 0:
            return np.zeros(0, np.int32)
        if self._is_uniform:
            return _place_uniform(self.offsets, self.keys.offsets, self.keys.data, wanted)
        if self._shapes is None:
            return _search(self.offsets, self.present, self.keys.offsets, self.keys.data, wanted)
        shapes, first_rows = self._shapes
        slots = np.array([self._slot(int(row), wanted) for row in first_rows], np.int32)
        return _place(self.offsets, shapes, slots)

    def gather(self, places: Int32s) -> pa.BinaryArray:
        """The values at these places; NULL where the pair is NULL or absent."""
        return cast(pa.BinaryArray, self.items.take(cast(Any, pa.array(places, mask=places < 0))))

    @cached_property
    def _is_uniform(self) -> bool:
        """Whether all rows have one shape, as in a log of one table."""
        return not len(self.present) and bool(_uniform(self.offsets, self.keys.offsets, self.keys.data))

    @cached_property
    def _shapes(self) -> tuple[Int32s, Int32s] | None:
        shapes = np.empty(self._rows, np.int32)
        first_rows = np.empty(MAX_SHAPES, np.int32)
        key_offsets = self.keys.offsets
        found = _number(
            self.offsets, self.present, key_offsets, key_offsets.view(np.uint8), self.keys.data, shapes, first_rows
        )
        return None if found < 0 else (shapes, first_rows[:found])

    def _slot(self, row: int, wanted: Bytes) -> int:
        if len(self.present) and not self.present[row]:
            return -1
        first, end = int(self.offsets[row]), int(self.offsets[row + 1])
        return int(_slot_of(self.keys.offsets, self.keys.data, first, end, wanted))


@inlined
def _is_at(key_offsets: Int32s, keys: Bytes, pair: Number, wanted: Bytes) -> bool:
    start = np.int64(key_offsets[pair])
    length = np.int64(key_offsets[pair + 1]) - start
    return length == len(wanted) and same_bytes(keys, start, wanted, 0, length)


@kernel
def _slot_of(key_offsets: Int32s, keys: Bytes, first: int, end: int, wanted: Bytes) -> int:
    for pair in range(first, end):
        if _is_at(key_offsets, keys, pair, wanted):
            return pair - first
    return -1


@kernel
def _search(offsets: Int32s, present: Flags, key_offsets: Int32s, keys: Bytes, wanted: Bytes) -> Int32s:
    places = np.full(len(offsets) - 1, -1, np.int32)
    slot = np.int64(0)
    for row in range(len(places)):
        if len(present) and not present[row]:
            continue
        first, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        if first + slot < end and _is_at(key_offsets, keys, first + slot, wanted):
            places[row] = first + slot
            continue
        for pair in range(first, end):
            if _is_at(key_offsets, keys, pair, wanted):
                places[row] = pair
                slot = pair - first
                break
    return places


@kernel
def _place(offsets: Int32s, shapes: Int32s, slots: Int32s) -> Int32s:
    places = np.empty(len(shapes), np.int32)
    for row in range(len(shapes)):
        slot = slots[shapes[row]]
        places[row] = offsets[row] + slot if slot >= 0 else -1
    return places


@kernel
def _place_uniform(offsets: Int32s, key_offsets: Int32s, keys: Bytes, wanted: Bytes) -> Int32s:
    """The places where every row has the shape of the first."""
    rows = len(offsets) - 1
    first, end = np.int64(offsets[0]), np.int64(offsets[1])
    for pair in range(first, end):
        if _is_at(key_offsets, keys, pair, wanted):
            slot = np.int32(pair - first)
            places = np.empty(rows, np.int32)
            for row in range(rows):
                places[row] = offsets[row] + slot
            return places
    return np.full(rows, -1, np.int32)


@kernel
def _uniform(offsets: Int32s, key_offsets: Int32s, keys: Bytes) -> bool:
    """Whether the names repeat from row to row; every loop here compares many numbers a step."""
    first, last = np.int64(offsets[0]), np.int64(offsets[len(offsets) - 1])
    pairs = np.int32(offsets[1] - offsets[0])
    different = np.int32(0)
    for row in range(len(offsets) - 1):
        different |= (offsets[row + 1] - offsets[row]) ^ pairs
    if different:
        return False
    start, end = np.int64(key_offsets[first]), np.int64(key_offsets[last])
    length = np.int32(key_offsets[first + pairs] - key_offsets[first])
    row_keys, next_keys = key_offsets[first : last - pairs], key_offsets[first + pairs : last]
    for pair in range(len(row_keys)):
        different |= (next_keys[pair] - row_keys[pair]) ^ length
    if different or np.int64(key_offsets[last]) - np.int64(key_offsets[last - pairs]) != length:
        return False
    bytes_differ = np.uint8(0)
    row_bytes, next_bytes = keys[start : end - length], keys[start + length : end]
    for at in range(len(row_bytes)):
        bytes_differ |= row_bytes[at] ^ next_bytes[at]
    return bool(bytes_differ == 0)


@inlined
def _signature(keys: Bytes, start: Number, stop: Number) -> Number:
    """A number that differs for most different shapes of as many names: how long together, how the first one begins.

    Whoever chooses the names can make it equal for any: it only says which are worth comparing.
    """
    head = load_u64(keys, start) if stop - start >= 8 else np.uint64(0)
    return head ^ (np.uint64(stop - start) << np.uint64(24))


@inlined
def _same_lengths(offset_bytes: Bytes, left: Number, right: Number, pairs: Number, shift: Number) -> bool:
    """Whether all offsets from `left` on differ from those from `right` on by `shift`, two offsets a step.

    `right` comes later, so that no step borrows from its upper offset to its lower one; the last step may overlap.
    """
    both = np.uint64(shift) * np.uint64(0x1_0000_0001)
    last = 4 * (pairs - 1)
    at = np.int64(0)
    while at < last:
        if load_u64(offset_bytes, 4 * right + at) - load_u64(offset_bytes, 4 * left + at) != both:
            return False
        at += 8
    return bool(load_u64(offset_bytes, 4 * right + last) - load_u64(offset_bytes, 4 * left + last) == both)


@kernel
def _number(
    offsets: Int32s,
    present: Flags,
    key_offsets: Int32s,
    offset_bytes: Bytes,
    keys: Bytes,
    shapes: Int32s,
    first_rows: Int32s,
) -> int:
    """Numbers the shapes of all rows, the one of the row before tried first; -1 where there are too many."""
    signatures = np.empty(len(first_rows), np.uint64)
    counts = np.empty(len(first_rows), np.int64)
    firsts = np.empty(len(first_rows), np.int64)
    found = 0
    shape = 0
    for row in range(len(shapes)):
        first = np.int64(offsets[row])
        pairs: Number = np.int64(offsets[row + 1]) - first
        if len(present) and not present[row]:
            pairs = 0
        start, stop = np.int64(key_offsets[first]), np.int64(key_offsets[first + pairs])
        signature = _signature(keys, start, stop)
        tried = 0
        while tried < found:
            if counts[shape] == pairs and signatures[shape] == signature:
                begin = np.int64(key_offsets[firsts[shape]])
                if pairs == 0 or (
                    _same_lengths(offset_bytes, firsts[shape], first, pairs, start - begin)
                    and same_bytes(keys, begin, keys, start, stop - start)
                ):
                    break
            shape = 0 if shape + 1 == found else shape + 1
            tried += 1
        if tried == found:
            if found == len(first_rows):
                return -1
            shape = found
            signatures[shape] = signature
            counts[shape] = pairs
            firsts[shape] = first
            first_rows[shape] = row
            found += 1
        shapes[row] = shape
    return found
