"""The pairs codec: how one update's key-value pairs become the value of a RocksDB entry or a record of a log file.

    magic F5 54 50 01 | count u16 | count x (key length u16, value length u32; 0xFFFFFFFF = NULL) | keys | values

Numbers are little endian; keys (UTF-8) lie back to back, and so do values: a decoder copies all keys of a row at once,
and all values at once, into the Arrow buffers. Bytes that do not add up exactly are not an error, as a log may hold
values of other programs: they are *foreign*, and travel as the single pair `value`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.errors import UpdateInvalid
from tailrace.updates.buffers import BytesColumn, binary_array, offsets_of, valid_of
from tailrace.updates.kernels import Bytes, Flags, Int32s, Int64s, Number, copy_bytes, inlined, kernel

MAGIC: Final = b"\xf5TP\x01"
HEADER_BYTES: Final = 6
PAIR_BYTES: Final = 6  # per pair in the table: a key length and a value length
NULL_LENGTH: Final = 0xFFFFFFFF
MAX_PAIRS: Final = 0xFFFF
MAX_KEY_BYTES: Final = 0xFFFF
MAX_VALUE_BYTES: Final = 2**31 - 1  # what one Arrow value can hold

_MAGIC = np.frombuffer(MAGIC, np.uint8)
_PAIR = struct.Struct("<HI")
_TOO_MANY_PAIRS, _KEY_TOO_LONG = 1, 2


def encode_pairs(pairs: Mapping[str, bytes | str | None]) -> bytes:
    """One update's pairs as bytes; text becomes UTF-8."""
    if len(pairs) > MAX_PAIRS:
        raise UpdateInvalid(reason=f"{len(pairs)} pairs; an update has at most {MAX_PAIRS}")
    table: list[bytes] = [MAGIC, len(pairs).to_bytes(2, "little")]
    keys: list[bytes] = []
    values: list[bytes] = []
    for name, value in pairs.items():
        key = _encoded_name(name)
        held = _encoded_value(name, value)
        table.append(_PAIR.pack(len(key), NULL_LENGTH if held is None else len(held)))
        keys.append(key)
        if held is not None:
            values.append(held)
    return b"".join([*table, *keys, *values])


def _encoded_name(name: str) -> bytes:
    if not isinstance(name, str):
        raise UpdateInvalid(reason=f"the name of pair {name!r} is {type(name).__name__}; a name is text")
    try:
        key = name.encode()
    except UnicodeEncodeError as error:
        raise UpdateInvalid(reason=f"the name of pair {name!r} is no text: {error.reason}") from error
    if len(key) > MAX_KEY_BYTES:
        raise UpdateInvalid(reason=f"pair name of {len(key)} bytes; a name has at most {MAX_KEY_BYTES}")
    return key


def _encoded_value(name: str, value: bytes | str | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError as error:
            raise UpdateInvalid(reason=f"pair {name!r} holds no text: {error.reason}; give it as bytes") from error
    if not isinstance(value, bytes):
        raise UpdateInvalid(reason=f"pair {name!r} holds {type(value).__name__}; a value is bytes, text or None")
    if len(value) > MAX_VALUE_BYTES:
        raise UpdateInvalid(reason=f"pair {name!r} has {len(value)} bytes; a value has at most {MAX_VALUE_BYTES}")
    return value


def decode_pairs(data: bytes) -> dict[str, bytes | None]:
    """The pairs in `data`; foreign bytes are the one pair `value`. Of a repeated name the last one holds."""
    found = _decoded(data)
    return {"value": data} if found is None else found


def is_pairs(data: bytes) -> bool:
    """Whether `data` is exactly what `encode_pairs` makes."""
    return _decoded(data) is not None


def _decoded(data: bytes) -> dict[str, bytes | None] | None:
    if not data.startswith(MAGIC) or len(data) < HEADER_BYTES:
        return None
    count = int.from_bytes(data[4:6], "little")
    key_at = HEADER_BYTES + count * PAIR_BYTES
    if len(data) < key_at:
        return None
    table = list(_PAIR.iter_unpack(data[HEADER_BYTES:key_at]))
    value_at = key_at + sum(key_length for key_length, _ in table)
    if len(data) != value_at + sum(length for _, length in table if length != NULL_LENGTH):
        return None
    pairs: dict[str, bytes | None] = {}
    for key_length, value_length in table:
        try:
            name = data[key_at : key_at + key_length].decode()
        except UnicodeDecodeError:
            return None
        key_at += key_length
        if value_length == NULL_LENGTH:
            pairs[name] = None
        else:
            pairs[name] = data[value_at : value_at + value_length]
            value_at += value_length
    return pairs


def encode_pairs_array(pairs: pa.MapArray[Any, Any]) -> pa.BinaryArray:
    """A column of pairs, one encoded value per row; NULL stays NULL."""
    offsets = offsets_of(pairs, pairs.buffers()[1])
    keys, values = _columns(pairs)
    valid = valid_of(pairs)
    present = np.ones(len(pairs), np.bool_) if valid is None else valid
    held = np.zeros(0, np.bool_) if values.valid is None else values.valid
    starts = np.zeros(len(pairs) + 1, np.int64)
    problem, row = _measure(offsets, present, keys.offsets, values.offsets, held, starts)
    if problem == _TOO_MANY_PAIRS:
        raise UpdateInvalid(reason=f"row {row} has more than {MAX_PAIRS} pairs")
    if problem == _KEY_TOO_LONG:
        raise UpdateInvalid(reason=f"row {row} has a pair name of more than {MAX_KEY_BYTES} bytes")
    if starts[-1] > MAX_VALUE_BYTES:
        raise UpdateInvalid(reason=f"{len(pairs)} updates of {starts[-1]} bytes together; at most {MAX_VALUE_BYTES}")
    laid_out = np.empty(int(starts[-1]), np.uint8)
    _fill(laid_out, starts, offsets, present, keys.offsets, keys.data, values.offsets, values.data, held)
    return binary_array(starts.astype(np.int32), laid_out, valid)


def _columns(pairs: Any) -> tuple[BytesColumn, BytesColumn]:
    """The whole child arrays, as the map's offsets count from their beginning."""
    return BytesColumn.of(pairs.keys), BytesColumn.of(pairs.items)


@kernel
def _measure(
    offsets: Int32s, present: Flags, key_offsets: Int32s, value_offsets: Int32s, held: Flags, starts: Int64s
) -> tuple[int, int]:
    for row in range(len(present)):
        size = np.int64(0)
        if present[row]:
            first, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
            if end - first > 0xFFFF:
                return _TOO_MANY_PAIRS, row
            size = 6 + 6 * (end - first) + np.int64(key_offsets[end] - key_offsets[first])
            for pair in range(first, end):
                if key_offsets[pair + 1] - key_offsets[pair] > 0xFFFF:
                    return _KEY_TOO_LONG, row
                if len(held) == 0 or held[pair]:
                    size += np.int64(value_offsets[pair + 1] - value_offsets[pair])
        starts[row + 1] = starts[row] + size
    return 0, 0


@kernel
def _fill(
    laid_out: Bytes,
    starts: Int64s,
    offsets: Int32s,
    present: Flags,
    key_offsets: Int32s,
    keys: Bytes,
    value_offsets: Int32s,
    values: Bytes,
    held: Flags,
) -> None:
    for row in range(len(present)):
        if not present[row]:
            continue
        first, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        at = starts[row]
        copy_bytes(laid_out, at, _MAGIC, 0, 4)
        _put(laid_out, at + 4, end - first, 2)
        at += 6
        key_at = at + 6 * (end - first)
        key_bytes = np.int64(key_offsets[end] - key_offsets[first])
        copy_bytes(laid_out, key_at, keys, np.int64(key_offsets[first]), key_bytes)
        value_at = key_at + key_bytes
        for pair in range(first, end):
            _put(laid_out, at, np.int64(key_offsets[pair + 1] - key_offsets[pair]), 2)
            if len(held) and not held[pair]:
                _put(laid_out, at + 2, np.int64(0xFFFFFFFF), 4)
            else:
                length = np.int64(value_offsets[pair + 1] - value_offsets[pair])
                _put(laid_out, at + 2, length, 4)
                copy_bytes(laid_out, value_at, values, np.int64(value_offsets[pair]), length)
                value_at += length
            at += 6


@inlined
def _put(target: Bytes, at: Number, number: Number, width: int) -> None:
    for byte in range(width):
        target[at + byte] = (number >> (8 * byte)) & 0xFF
