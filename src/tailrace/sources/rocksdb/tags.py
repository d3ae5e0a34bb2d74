"""The tags that open the entries of a write batch, and the numbers in them.

Many tags share a shape (key and value; key alone; nothing), and differ in whether a column family's number stands
before it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tailrace.sources.memory import load8
from tailrace.updates.kernels import inlined, kernel

BATCH_HEADER_BYTES: Final = 12
WITH_FAMILY: Final = 16  # a flag beside the shape

# The shapes.
BAD, PUT, DELETION, MERGING, RANGING, LOG_DATA, NO_OP, TRANSACTION, BLOB_INDEX, WIDE, TIMED = range(11)


def _shapes() -> Any:
    """By tag."""
    shapes = np.zeros(256, dtype=np.int64)
    for tags, shape in (
        ((0x01, 0x05), PUT),
        ((0x00, 0x04, 0x07, 0x08), DELETION),
        ((0x02, 0x06), MERGING),
        ((0x0F, 0x0E), RANGING),
        ((0x03,), LOG_DATA),
        ((0x0D,), NO_OP),
        ((0x09, 0x0A, 0x0B, 0x0C, 0x12, 0x13, 0x15), TRANSACTION),
        ((0x11, 0x10), BLOB_INDEX),
        ((0x16, 0x17), WIDE),
        ((0x18, 0x19), TIMED),
    ):
        for tag in tags:
            shapes[tag] = shape
    for tag in (0x05, 0x04, 0x08, 0x06, 0x0E, 0x10, 0x17, 0x19):
        shapes[tag] |= WITH_FAMILY
    return shapes


SHAPES: Final = _shapes()


@inlined
def varint(at: int, end: int) -> tuple[int, int]:
    """(value, where it ends); an end of -1 says that it reaches beyond `end`."""
    if at < end:
        low = load8(at)
        if low < 128:
            return low, at + 1
    value = 0
    shift = 0
    while at < end and shift <= 28:
        byte = load8(at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFF, at
        shift += 7
    return 0, -1


@kernel
def holds_transactions(start: int, end: int) -> bool:
    """Whether a write batch holds parts of prepared transactions; False where it does not parse."""
    at = start + BATCH_HEADER_BYTES
    while at < end:
        shape = SHAPES[load8(at)]
        at += 1
        if shape & WITH_FAMILY:
            _family, at = varint(at, end)
            if at < 0:
                return False
        shape &= 15
        if shape == TRANSACTION:
            return True
        if shape == BAD:
            return False
        texts = 0 if shape == NO_OP else (1 if shape in (DELETION, LOG_DATA) else 2)
        for _ in range(texts):
            size, at = varint(at, end)
            if at < 0:
                return False
            at += size
    return False
