"""Runs the programs of many filters over a batch in one call, and leaves one bit per row and filter.

A program is a filter in postfix: an instruction either tests one key in all rows and pushes a flag per row, or joins
the topmost flags. What it tests lies in memory that the caller keeps: the batch's columns and what `Values` read from
them, whose addresses are in a *frame* of one line per key, and the operands, whose addresses are in the instruction.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tailrace.updates.filters.number_scan import LONG as LONG_NUMBER
from tailrace.updates.filters.scans import affixed, classed
from tailrace.updates.filters.tags import LONG, MAX_FEW_WORDS, Tags, is_word
from tailrace.updates.kernels import (
    Bytes,
    Flags,
    Int32s,
    Int64s,
    carray,
    f64_at,
    i32_at,
    i64_at,
    inlined,
    kernel,
    load_u64,
    u8_at,
    u64_at,
)

# Instructions, and what stands in their three operands.
ALL, NONE, NOT, AND, OR = 0, 1, 2, 3, 4
EXISTS = 5
AMONG = 6  # the address of a word list
BETWEEN = 7  # the address of two floats; whether a bound is too long for a float
WHOLE32, WHOLE64 = 8, 9  # two whole numbers, both within
ANY_WHOLE32, ANY_WHOLE64 = 10, 11  # the address of whole numbers, and how many
AFFIXED = 12  # the address of bytes, how many, whether at the end
CLASSES = 13  # the address of 256 flags for each byte, how many bytes, which ends they are bound to
INSTRUCTION_WIDTH: Final = 5  # what, the key, three operands

# A line of the frame.
PLACES, OFFSETS, DATA, VALID, VALID_ROWS, TAGS, FLOATS, KINDS = 0, 1, 2, 3, 4, 5, 6, 7
FRAME_WIDTH: Final = 8

WORD_TAGS, WORD_OFFSETS, WORDS, WORD_TABLE, WORD_COUNT, TABLE_SLOTS = 0, 1, 2, 3, 4, 5  # a word list
_ANY = np.int64(1 << 40)  # the length of arrays whose length nobody asks for
_EIGHT_BITS = np.uint64(0x0102040810204080)

Frame = npt.NDArray[np.int64]


@kernel
def hold(
    frame: Frame,
    line: int,
    places: Int32s,
    offsets: Int32s,
    data: Bytes,
    valid: Flags,
    tags: Tags,
    floats: npt.NDArray[np.float64],
    kinds: Bytes,
) -> None:
    """Writes down where the values of a key lie."""
    frame[line, 0] = places.ctypes.data
    frame[line, 1] = offsets.ctypes.data
    frame[line, 2] = data.ctypes.data
    frame[line, 3] = valid.ctypes.data
    frame[line, 4] = len(valid)
    frame[line, 5] = tags.ctypes.data
    frame[line, 6] = floats.ctypes.data
    frame[line, 7] = kinds.ctypes.data


@kernel
def hold_whole(frame: Frame, line: int, numbers: npt.NDArray[np.int64], valid: Flags) -> None:
    """The same of a column of whole numbers."""
    frame[line, 0] = numbers.ctypes.data
    frame[line, 3] = valid.ctypes.data
    frame[line, 4] = len(valid)


@kernel
def run(
    code: Int64s, ends: Int64s, lines: Int64s, frame: Frame, rows: int, depth: int, bits: Bytes, unsure: Flags
) -> None:
    """`bits` has a line per program. A program is `unsure` where a number needs an exact comparison."""
    stack = np.empty((depth, -(-rows // 8) * 8), np.uint8)
    at = 0
    for program in range(len(ends)):
        unsure[program] = False
        top = -1
        while at < ends[program]:
            what, key = code[at, 0], code[at, 1]
            if what == NOT:
                _not(stack[top], rows)
            elif what == AND:
                _and(stack[top - 1], stack[top], rows)
                top -= 1
            elif what == OR:
                _or(stack[top - 1], stack[top], rows)
                top -= 1
            elif what <= NONE:
                top += 1
                stack[top, :] = np.uint8(what == ALL)
            else:
                top += 1
                if not _test(stack[top], rows, what, frame[lines[key]], code[at, 2], code[at, 3], code[at, 4]):
                    unsure[program] = True
            at += 1
        _pack(stack[0], rows, bits[program])


@kernel
def _test(flags: Bytes, rows: int, what: int, held: Int64s, first: int, second: int, third: int) -> bool:
    """One instruction that tests a key; False where the answer is not exact."""
    if what == BETWEEN:
        return _between(flags, rows, held, carray(f64_at(first), 2), second)
    if what == EXISTS:
        places = carray(i32_at(held[PLACES]), rows)
        for row in range(rows):
            flags[row] = places[row] >= 0
    elif what == AMONG:
        _among(flags, rows, held, carray(i64_at(first), 6))
    elif what == AFFIXED:
        places, offsets, data = _values_of(held, rows)
        valid = carray(u8_at(held[VALID]), held[VALID_ROWS])
        flags[:rows] = affixed(places, offsets, data, valid, carray(u8_at(first), second), third != 0)
    elif what == CLASSES:
        places, offsets, data = _values_of(held, rows)
        valid = carray(u8_at(held[VALID]), held[VALID_ROWS])
        classes = carray(u8_at(first), (second, 256))
        flags[:rows] = classed(places, offsets, data, valid, classes, third)
    else:
        if what == WHOLE32:
            _whole(flags, carray(i32_at(held[PLACES]), rows), first, second)
        elif what == WHOLE64:
            _whole(flags, carray(i64_at(held[PLACES]), rows), first, second)
        elif what == ANY_WHOLE32:
            _any_whole(flags, carray(i32_at(held[PLACES]), rows), carray(i64_at(first), second))
        else:
            _any_whole(flags, carray(i64_at(held[PLACES]), rows), carray(i64_at(first), second))
        if held[VALID_ROWS]:
            _and(flags, carray(u8_at(held[VALID]), rows), rows)
    return True


@inlined
def _values_of(held: Int64s, rows: int) -> tuple[Int32s, Int32s, Bytes]:
    return (
        carray(i32_at(held[PLACES]), rows),
        carray(i32_at(held[OFFSETS]), _ANY),
        carray(u8_at(held[DATA]), _ANY),
    )


@kernel
def _not(flags: Bytes, rows: int) -> None:
    for row in range(rows):
        flags[row] ^= np.uint8(1)


@kernel
def _and(flags: Bytes, others: Bytes, rows: int) -> None:
    for row in range(rows):
        flags[row] &= others[row]


@kernel
def _or(flags: Bytes, others: Bytes, rows: int) -> None:
    for row in range(rows):
        flags[row] |= others[row]


@kernel
def _pack(flags: Bytes, rows: int, bits: Bytes) -> None:
    """Eight flags a step; the flags are padded to a multiple of eight."""
    for row in range(rows, len(flags)):
        flags[row] = 0
    for byte in range(len(flags) // 8):
        bits[byte] = np.uint8((load_u64(flags, byte * 8) * _EIGHT_BITS) >> np.uint64(56))


@kernel
def _between(flags: Bytes, rows: int, held: Int64s, bounds: npt.NDArray[np.float64], all_long: int) -> bool:
    floats, kinds = carray(f64_at(held[FLOATS]), rows), carray(u8_at(held[KINDS]), rows)
    low, high = bounds[0], bounds[1]
    for row in range(rows):
        flags[row] = (floats[row] >= low) & (floats[row] <= high)
    at_bound = np.uint8(0)
    for row in range(rows):
        at_bound |= np.uint8((floats[row] == low) | (floats[row] == high))
    if not at_bound:
        return True
    for row in range(rows):
        if (floats[row] == low or floats[row] == high) and (all_long or kinds[row] == LONG_NUMBER):
            return False
    return True


@kernel
def _among(flags: Bytes, rows: int, held: Int64s, words: Int64s) -> None:
    tags = carray(u64_at(held[TAGS]), rows)
    count = words[WORD_COUNT]
    word_tags = carray(u64_at(words[WORD_TAGS]), count)
    any_long = False
    if count <= MAX_FEW_WORDS:
        wanted = word_tags[0]
        any_long = wanted >= LONG
        for row in range(rows):
            flags[row] = tags[row] == wanted
        for word in range(1, count):
            wanted = word_tags[word]
            any_long |= wanted >= LONG
            for row in range(rows):
                flags[row] |= np.uint8(tags[row] == wanted)
        if not any_long:
            return
    else:
        for row in range(rows):
            flags[row] = 1
    places, offsets, data = _values_of(held, rows)
    table = carray(i32_at(words[WORD_TABLE]), words[TABLE_SLOTS])
    word_offsets = carray(i32_at(words[WORD_OFFSETS]), count + 1)
    word_bytes = carray(u8_at(words[WORDS]), _ANY)
    for first in range(0, rows, 8):
        if load_u64(flags, first):
            for row in range(first, min(first + 8, rows)):
                if flags[row]:
                    flags[row] = is_word(
                        tags[row], places[row], offsets, data, table, word_tags, word_offsets, word_bytes
                    )


@kernel
def _whole(flags: Bytes, numbers: Int64s, low: int, high: int) -> None:
    for row in range(len(numbers)):
        flags[row] = (numbers[row] >= low) & (numbers[row] <= high)


@kernel
def _any_whole(flags: Bytes, numbers: Int64s, wanted: Int64s) -> None:
    flags[:] = 0
    for at in range(len(wanted)):
        for row in range(len(numbers)):
            flags[row] |= np.uint8(numbers[row] == wanted[at])
