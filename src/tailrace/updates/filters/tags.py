"""A value of any length as one number, so that comparing a column with a word is comparing numbers.

The tag of a value of up to seven bytes holds those bytes and, in its top byte, their count: equal tags are equal
values. A longer value's tag is a hash of its length and both its ends with the top bit set: equal tags are confirmed
byte by byte. Tags are made once
per batch and key; after that a word costs a filter half a nanosecond per row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tailrace.updates.kernels import Bytes, Flags, Int32s, Int64s, Number, inlined, kernel, load_u64, same_bytes

Tags = npt.NDArray[np.uint64]

MAX_EXACT_BYTES: Final = 7  # a value of up to so many bytes is its tag
MAX_FEW_WORDS: Final = 12  # so many short words are compared one by one; more are looked up in a table
HASHED_END_BYTES: Final = 64  # of each end; what lies between is left to the comparison of bytes
NO_VALUE: Final = np.uint64(0x40 << 56)  # of a row where the key is absent or NULL
LONG: Final = np.uint64(1 << 63)
_PRIME = np.uint64(0x9E3779B97F4A7C15)


@inlined
def tag_of(data: Bytes, start: Number, end: Number) -> Number:
    size = end - start
    if size <= 7:
        if start + 8 <= len(data):
            kept = (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
            return (load_u64(data, start) & kept) | (np.uint64(size) << np.uint64(56))
        word = np.uint64(size) << np.uint64(56)
        for byte in range(size):
            word |= np.uint64(data[start + byte]) << np.uint64(8 * byte)
        return word
    state = np.uint64(size) * _PRIME
    at = start
    while at < end - 8:
        state = (state ^ load_u64(data, at)) * _PRIME
        state ^= state >> np.uint64(32)
        at += 8
        if at == start + HASHED_END_BYTES and end - at > HASHED_END_BYTES:
            at = end - HASHED_END_BYTES
    state = (state ^ load_u64(data, end - 8)) * _PRIME
    return (state ^ (state >> np.uint64(32))) | LONG


@kernel
def tags_of(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags) -> Tags:
    """The tag of each row's value: the one at `places[row]` of a column of bytes, -1 where the row has none."""
    tags = np.empty(len(places), np.uint64)
    for row in range(len(places)):
        place = np.int64(places[row])
        if place >= 0 and (len(valid) == 0 or valid[place]):
            tags[row] = tag_of(data, np.int64(offsets[place]), np.int64(offsets[place + 1]))
        else:
            tags[row] = NO_VALUE
    return tags


@kernel
def confirm(flags: Flags, places: Int32s, offsets: Int32s, data: Bytes, wanted: Bytes) -> None:
    """Takes back the flags of long values that only have the tag of the wanted one."""
    size = len(wanted)
    for row in range(len(flags)):
        if flags[row]:
            place = np.int64(places[row])
            start = np.int64(offsets[place])
            flags[row] = np.int64(offsets[place + 1]) - start == size and same_bytes(data, start, wanted, 0, size)


@kernel
def any_equal(tags: Tags, wanted: Tags) -> Flags:
    """Whether a tag is one of a few."""
    flags: Flags = tags == wanted[0]
    for word in range(1, len(wanted)):
        for row in range(len(tags)):
            flags[row] |= tags[row] == wanted[word]
    return flags


@inlined
def slot_of(tag: Number, mask: Number) -> Number:
    product = tag * _PRIME
    return (product ^ (product >> np.uint64(32))) & mask


@kernel
def table_of(tags: Tags, slots: int) -> Int32s:
    """A hash table of words by their tags. `slots` is a power of two over their number."""
    table = np.full(slots, -1, np.int32)
    mask = np.uint64(slots - 1)
    for word in range(len(tags)):
        slot = slot_of(tags[word], mask)
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = word
    return table


@inlined
def is_word(
    tag: Number,
    place: Number,
    offsets: Int32s,
    data: Bytes,
    table: Int32s,
    word_tags: Tags,
    word_offsets: Int32s,
    words: Bytes,
) -> bool:
    """Whether a value is in a hash table of words; only a long one's bytes are looked at."""
    mask = np.uint64(len(table) - 1)
    slot = slot_of(tag, mask)
    word = np.int64(table[slot])
    while word >= 0:
        if word_tags[word] == tag:
            if tag < LONG:
                return True
            start, begin = np.int64(offsets[np.int64(place)]), np.int64(word_offsets[word])
            size = np.int64(offsets[np.int64(place) + 1]) - start
            same = np.int64(word_offsets[word + 1]) - begin == size
            if same and same_bytes(data, start, words, begin, size):
                return True
        slot = (slot + np.uint64(1)) & mask
        word = np.int64(table[slot])
    return False


@kernel
def among(
    tags: Tags,
    places: Int32s,
    offsets: Int32s,
    data: Bytes,
    table: Int32s,
    word_tags: Tags,
    word_offsets: Int32s,
    words: Bytes,
) -> Flags:
    flags = np.empty(len(tags), np.bool_)
    for row in range(len(tags)):
        flags[row] = is_word(tags[row], places[row], offsets, data, table, word_tags, word_offsets, words)
    return flags


@kernel
def distinct(
    tags: Tags, places: Int32s, offsets: Int32s, data: Bytes, codes: Int32s, first_rows: Int64s, slots: int
) -> int:
    """Numbers the distinct values of all rows: `codes` by row, `first_rows` where each is met. -1 if too many.

    A row without a value gets the code -1. `slots`, a power of two, is larger than the number of values allowed.
    """
    table = np.full(slots, -1, np.int32)
    found = 0
    mask = np.uint64(slots - 1)
    for row in range(len(tags)):
        tag = tags[row]
        if tag == NO_VALUE:
            codes[row] = -1
            continue
        place = np.int64(places[row])
        start = np.int64(offsets[place])
        size = np.int64(offsets[place + 1]) - start
        slot = slot_of(tag, mask)
        code = np.int64(table[slot])
        while code >= 0:
            first = first_rows[code]
            if tags[first] == tag:
                if tag < LONG:
                    break
                begin = np.int64(offsets[np.int64(places[first])])
                same = np.int64(offsets[np.int64(places[first]) + 1]) - begin == size
                if same and same_bytes(data, start, data, begin, size):
                    break
            slot = (slot + np.uint64(1)) & mask
            code = np.int64(table[slot])
        if code < 0:
            if found == len(first_rows):
                return -1
            code = np.int64(found)
            table[slot] = code
            first_rows[code] = row
            found += 1
        codes[row] = code
    return found


@kernel
def spread(answers: Flags, codes: Int32s) -> Flags:
    """The answer of each row's value; a row without a value has none."""
    flags = np.empty(len(codes), np.bool_)
    for row in range(len(codes)):
        code = codes[row]
        flags[row] = code >= 0 and answers[code]
    return flags
