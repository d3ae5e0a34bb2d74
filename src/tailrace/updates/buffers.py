"""Arrow arrays of bytes as the flat numpy arrays that kernels read, without copying.

An Arrow array may be a slice of a longer one: its offsets then start in the middle of the buffer, and do not start at
0. What leaves here is already cut to the slice: `offsets` has one entry more than there are rows, and points into
`data` as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tailrace.updates.kernels import EMPTY_BYTES, Bytes, Flags, Int32s

_BOOL: Final = pa.bool_()
_PLAIN_KINDS: Final = (cast(Any, pa.string()).id, cast(Any, pa.binary()).id)
EMPTY_OFFSETS: Int32s = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """The values of a binary or string array. `valid` is None where nothing is NULL."""

    offsets: Int32s
    data: Bytes
    valid: Flags | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @staticmethod
    def of(array: Any) -> BytesColumn:
        """Any Arrow array of strings or bytes; the 64-bit, view and dictionary kinds are brought into the plain one."""
        if array.type.id not in _PLAIN_KINDS:
            array = array.cast(pa.binary())
        buffers = array.buffers()
        return BytesColumn(offsets_of(array, buffers[1]), bytes_of(buffers[2]), valid_of(array))


def bytes_of(buffer: pa.Buffer | None) -> Bytes:
    if buffer is None or buffer.size == 0:
        return EMPTY_BYTES
    return np.frombuffer(cast(Any, buffer), np.uint8)


def offsets_of(array: Any, buffer: pa.Buffer | None) -> Int32s:
    """The 32-bit offsets of an array of bytes, lists or maps, cut to its slice."""
    if buffer is None or buffer.size == 0 or len(array) == 0:
        return EMPTY_OFFSETS
    return np.frombuffer(cast(Any, buffer), np.int32, len(array) + 1, array.offset * 4)


def valid_of(array: Any) -> Flags | None:
    """Which rows are not NULL; None where all are."""
    if array.null_count == 0:
        return None
    bitmap = array.buffers()[0]
    first, count = array.offset, len(array)
    if bitmap is None:  # an array of type null
        return np.zeros(count, np.bool_)
    start = first // 8
    held = np.frombuffer(bitmap, np.uint8, (first + count + 7) // 8 - start, start)
    bits = np.unpackbits(held, bitorder="little")[first - start * 8 : first - start * 8 + count]
    return bits.view(np.bool_)


def binary_array(offsets: Int32s, data: Bytes, valid: Flags | None) -> pa.BinaryArray:
    """The other way: an Arrow array of bytes over numpy arrays, without copying them."""
    bitmap = None if valid is None else np.packbits(valid, bitorder="little")
    buffers: list[Any] = [None if part is None else pa.py_buffer(cast(Any, part)) for part in (bitmap, offsets, data)]
    return cast(pa.BinaryArray, pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers))


def boolean_array(flags: Flags) -> pa.BooleanArray:
    """One bit per row, no NULLs."""
    return boolean_array_of(pa.py_buffer(cast(Any, np.packbits(flags, bitorder="little"))), len(flags))


def boolean_array_of(bits: pa.Buffer, rows: int) -> pa.BooleanArray:
    """The same where the bits lie in a buffer already."""
    buffers: list[Any] = [None, bits]
    return cast(pa.BooleanArray, pa.Array.from_buffers(_BOOL, rows, buffers, 0))


def bytes_of_bits(count: int) -> int:
    return -(-count // 8)
