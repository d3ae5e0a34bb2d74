"""Plain text searched for in every value where it lies in the Arrow buffer; nothing is copied.

A row's value is the one at `places[row]` of a column of bytes; -1 is a row without one. `valid` is empty where no
value is NULL. What comes back is one flag per row.
"""

from __future__ import annotations

import numpy as np

from tailrace.updates.kernels import Bytes, Flags, Int32s, Number, inlined, kernel, same_bytes


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
def begun(places: Int32s, offsets: Int32s, data: Bytes, valid: Flags, initials: Flags) -> Flags:
    """Whether the value's first byte is one of the flagged ones."""
    flags = np.zeros(len(places), np.bool_)
    for row in range(len(places)):
        place = np.int64(places[row])
        if _has_value(valid, place):
            start = np.int64(offsets[place])
            flags[row] = start < np.int64(offsets[place + 1]) and initials[data[start]]
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
