"""Plain text searched for in every value where it lies in the Arrow buffer; nothing is copied.

A row's value is the one at `places[row]` of a column of bytes; -1 is a row without one. `valid` is empty where no
value is NULL. What comes back is one flag per row.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tailrace.updates.kernels import Bytes, Flags, Int32s, Number, inlined, kernel, same_bytes

AT_START: Final = 1
AT_END: Final = 2
BOTH_ENDS: Final = 3


@inlined
def _has_value(valid: Flags, place: Number) -> bool:
    return bool(place >= 0 and (len(valid) == 0 or valid[place]))


@kernel
def affixed(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, wanted: Bytes, at_end: bool) -> Flags:
    """Whether the value begins (or ends) with these bytes."""
    flags = np.zeros(len(places), np.bool_)
    size = len(wanted)
    for row in range(len(places)):
        place = np.int64(places[row])
        if _has_value(valid, place):
            start, end = np.int64(offsets[place]), np.int64(offsets[place + 1])
            flags[row] = end - start >= size and same_bytes(data, end - size if at_end else start, wanted, 0, size)
    return flags


@kernel
def classed(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, classes: Bytes, ends: int) -> Flags:
    """Whether the value's first or last bytes are of these classes, one byte each; of both ends, it has no others.

    A class is 256 flags; there is one at least.
    """
    flags = np.zeros(len(places), np.bool_)
    size = len(classes)
    for row in range(len(places)):
        place = np.int64(places[row])
        if _has_value(valid, place):
            start, end = np.int64(offsets[place]), np.int64(offsets[place + 1])
            if end - start < size or (ends == BOTH_ENDS and end - start > size):
                continue
            first = end - size if ends == AT_END else start
            passes = np.uint8(1)  # no branch in the loop: it would be guessed wrong often
            for byte in range(size):
                passes &= classes[byte, data[first + byte]]
            flags[row] = passes != 0
    return flags


@kernel
def containing(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, wanted: Bytes) -> Flags:
    """Whether the bytes occur anywhere in the value; there is one byte at least."""
    flags = np.zeros(len(places), np.bool_)
    size = len(wanted)
    head = wanted[0]
    for row in range(len(places)):
        place = np.int64(places[row])
        if _has_value(valid, place):
            for at in range(np.int64(offsets[place]), np.int64(offsets[place + 1]) - size + 1):
                if data[at] == head and same_bytes(data, at, wanted, 0, size):
                    flags[row] = True
                    break
    return flags
