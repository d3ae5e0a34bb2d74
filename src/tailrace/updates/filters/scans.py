"""The kernels of filters: each looks at one value per row where it lies in the Arrow buffer, and copies nothing.

A row's value is the one at `places[row]` of a column of bytes; -1 is a row without one. `valid` is empty where no
value is NULL. What comes back is one flag per row.
"""

from __future__ import annotations

import numpy as np

from tailrace.updates.kernels import (
    Bytes,
    Flags,
    Int32s,
    Number,
    inlined,
    kernel,
    load_u32,
    load_u64,
    same_bytes,
)

_PRIME = np.uint64(0x9E3779B97F4A7C15)


@inlined
def _has_value(valid: Flags, place: Number) -> bool:
    return place >= 0 and (len(valid) == 0 or valid[place])


@kernel
def has_value(places: Int32s, valid: Flags) -> Flags:
    flags = np.empty(len(places), np.bool_)
    for row in range(len(places)):
        flags[row] = _has_value(valid, places[row])
    return flags


@kernel
def equal(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, wanted: Bytes) -> Flags:
    flags = np.empty(len(places), np.bool_)
    size = len(wanted)
    for row in range(len(places)):
        place = np.int64(places[row])
        flag = False
        if _has_value(valid, place):
            start = np.int64(offsets[place])
            flag = np.int64(offsets[place + 1]) - start == size and same_bytes(data, start, wanted, 0, size)
        flags[row] = flag
    return flags


@kernel
def affixed(
    places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, wanted: Bytes, at_end: bool
) -> Flags:
    """Whether the value begins (or ends) with these bytes."""
    flags = np.empty(len(places), np.bool_)
    size = len(wanted)
    for row in range(len(places)):
        place = np.int64(places[row])
        flag = False
        if _has_value(valid, place):
            start, end = np.int64(offsets[place]), np.int64(offsets[place + 1])
            flag = end - start >= size and same_bytes(data, end - size if at_end else start, wanted, 0, size)
        flags[row] = flag
    return flags


@kernel
def containing(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, wanted: Bytes) -> Flags:
    """Whether the bytes occur anywhere in the value; there is one byte at least."""
    flags = np.empty(len(places), np.bool_)
    size = len(wanted)
    head = wanted[0]
    for row in range(len(places)):
        place = np.int64(places[row])
        flag = False
        if _has_value(valid, place):
            last = np.int64(offsets[place + 1]) - size
            for at in range(np.int64(offsets[place]), last + 1):
                if data[at] == head and same_bytes(data, at, wanted, 0, size):
                    flag = True
                    break
        flags[row] = flag
    return flags


# ---- sets of values ---------------------------------------------------------------------------------------------


@inlined
def _hashed(data: Bytes, start: Number, size: Number) -> Number:
    state = np.uint64(size) * _PRIME
    if size >= 8:
        at = np.int64(0)
        while at < size - 8:
            state = (state ^ load_u64(data, start + at)) * _PRIME
            state ^= state >> np.uint64(32)
            at += 8
        state = (state ^ load_u64(data, start + size - 8)) * _PRIME
    elif size >= 4:
        word = np.uint64(load_u32(data, start)) | (np.uint64(load_u32(data, start + size - 4)) << np.uint64(32))
        state = (state ^ word) * _PRIME
    else:
        for at in range(size):
            state = (state ^ np.uint64(data[start + at])) * _PRIME
    return state ^ (state >> np.uint64(29))


@inlined
def _found(table: Int32s, offsets: Int32s, words: Bytes, data: Bytes, start: Number, size: Number) -> Number:
    """The slot of the table that holds this value, or the free one where it belongs."""
    mask = np.uint64(len(table) - 1)
    slot = _hashed(data, start, size) & mask
    while table[slot] >= 0:
        word = np.int64(table[slot])
        begin = np.int64(offsets[word])
        if np.int64(offsets[word + 1]) - begin == size and same_bytes(data, start, words, begin, size):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def table_of(offsets: Int32s, words: Bytes, slots: int) -> Int32s:
    """A hash table over distinct values: `slots`, a power of two, is larger than their number."""
    table = np.full(slots, -1, np.int32)
    for word in range(len(offsets) - 1):
        start = np.int64(offsets[word])
        table[_found(table, offsets, words, words, start, np.int64(offsets[word + 1]) - start)] = word
    return table


@kernel
def among(
    places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, table: Int32s, word_offsets: Int32s, words: Bytes
) -> Flags:
    flags = np.empty(len(places), np.bool_)
    for row in range(len(places)):
        place = np.int64(places[row])
        flag = False
        if _has_value(valid, place):
            start = np.int64(offsets[place])
            size = np.int64(offsets[place + 1]) - start
            flag = table[_found(table, word_offsets, words, data, start, size)] >= 0
        flags[row] = flag
    return flags


@kernel
def distinct(
    places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, codes: Int32s, firsts: Int32s, slots: int
) -> int:
    """Numbers the distinct values of all rows: `codes` by row, `firsts` the place of each. -1 if there are too many.

    A row without a value gets the code -1. `slots`, a power of two, is larger than the number of values allowed.
    """
    table = np.full(slots, -1, np.int32)
    found = 0
    mask = np.uint64(slots - 1)
    for row in range(len(places)):
        place = np.int64(places[row])
        if not _has_value(valid, place):
            codes[row] = -1
            continue
        start = np.int64(offsets[place])
        size = np.int64(offsets[place + 1]) - start
        slot = _hashed(data, start, size) & mask
        while table[slot] >= 0:
            other = np.int64(firsts[table[slot]])
            begin = np.int64(offsets[other])
            if np.int64(offsets[other + 1]) - begin == size and same_bytes(data, start, data, begin, size):
                break
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            if found == len(firsts):
                return -1
            table[slot] = found
            firsts[found] = place
            found += 1
        codes[row] = table[slot]
    return found


@kernel
def spread(answers: Flags, codes: Int32s) -> Flags:
    """The answer of each row's value; a row without a value has none."""
    flags = np.empty(len(codes), np.bool_)
    for row in range(len(codes)):
        code = codes[row]
        flags[row] = code >= 0 and answers[code]
    return flags
