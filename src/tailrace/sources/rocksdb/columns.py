"""The second pass: rows of a log become the columns of an Arrow batch, in buffers of exactly the right size.

`measure` (in `entries`) noted where every key and value lies and how many bytes each column will hold. Here the
buffers are allocated from Arrow's pool, which hands freed pages out again, and a kernel copies whole keys, whole runs
of pair names and whole runs of pair values into them. Columns that are the same in every row, or that take one of few
values, are slices of arrays made once.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.sources.memory import copy, load8, load16, load32, load64, store8, store32, store64
from tailrace.sources.rocksdb.entries import Sum
from tailrace.sources.rocksdb.tags import varint
from tailrace.sources.rocksdb.values import Kind
from tailrace.updates.kernels import inlined, kernel
from tailrace.updates.schema import PAIRS_TYPE, UPDATE_SCHEMA
from tailrace.updates.sharding import shards_of

_arrow: Any = pa  # the stubs' overloads name each type; these calls take any
_NULL: Final = 0xFFFFFFFF
_K_FOREIGN, _K_CODEC, _K_ENTITY, _K_BLOB, _K_DELETE, _K_RANGE, _K_MERGE = (int(k) for k in Kind)
_NAMES: Final = np.frombuffer(b"value\x00\x00\x00blob_index\x00\x00\x00\x00\x00\x00end", dtype=np.uint8).copy()
OPERATION_NAMES: Final = ("put", "merge", "delete", "delete_range")
_CONSTANT_ROWS: Final = 1 << 12

# Where each column's buffer lies, as `fill` is told.
(
    _A_SEQUENCE,
    _A_SHARD,
    _A_TIME,
    _A_KEY_OFFSETS,
    _A_KEYS,
    _A_PAIR_OFFSETS,
    _A_NAME_OFFSETS,
    _A_NAMES,
    _A_VALUE_OFFSETS,
    _A_VALUES,
    _A_NULLS,
    _A_TIME_VALID,
    _A_PAIRS_VALID,
    _A_TABLE,
    _A_OPERATION,
    _A_WORDS,
) = range(16)


@inlined
def _clear_bit(bitmap: int, at: int) -> None:
    byte = bitmap + (at >> 3)
    store8(byte, load8(byte) & ~(1 << (at & 7)))


@inlined
def _copy_short(target: int, source: int, size: int) -> None:
    """A copy without a call where two overlapping words do."""
    if size > 16:
        copy(target, source, size)
    elif size >= 8:
        last = load64(source + size - 8)
        store64(target, load64(source))
        store64(target + size - 8, last)
    else:
        for i in range(size):
            store8(target + i, load8(source + i))


@kernel
def _fill_codec(value: int, pairs: int, pair: int, name_at: int, value_at: int, addresses: Any) -> tuple[int, int]:
    """Copies the pairs of a value in the codec; returns where names and values end."""
    table = value + 6
    names = table + 6 * pairs
    name_start = name_at
    value_start = value_at
    for i in range(pairs):
        name_at += load16(table + 6 * i)
        length = load32(table + 6 * i + 2)
        if length == _NULL:
            _clear_bit(addresses[_A_NULLS], pair + i)
        else:
            value_at += length
        store32(addresses[_A_NAME_OFFSETS] + 4 * (pair + i + 1), name_at)
        store32(addresses[_A_VALUE_OFFSETS] + 4 * (pair + i + 1), value_at)
    copy(addresses[_A_NAMES] + name_start, names, name_at - name_start)
    copy(addresses[_A_VALUES] + value_start, names + name_at - name_start, value_at - value_start)
    return name_at, value_at


@kernel
def _fill_entity(value: int, size: int, pair: int, name_at: int, value_at: int, addresses: Any) -> tuple[int, int]:
    end = value + size
    _version, at = varint(value, end)
    count, at = varint(at, end)
    value_start = value_at
    for i in range(count):
        length, at = varint(at, end)
        if length == 0:
            copy(addresses[_A_NAMES] + name_at, _NAMES.ctypes.data, 5)
            name_at += 5
        else:
            copy(addresses[_A_NAMES] + name_at, at, length)
            name_at += length
        length, at = varint(at + length, end)
        value_at += length
        store32(addresses[_A_NAME_OFFSETS] + 4 * (pair + i + 1), name_at)
        store32(addresses[_A_VALUE_OFFSETS] + 4 * (pair + i + 1), value_at)
    copy(addresses[_A_VALUES] + value_start, at, end - at)
    return name_at, value_at


@kernel
def _fill_single(kind: int, value: int, size: int, pair: int, name_at: int, value_at: int,
                 addresses: Any) -> tuple[int, int]:  # fmt: skip
    """One pair: a foreign value, the end of a range, a reference to a blob."""
    name = _NAMES.ctypes.data
    length = 5
    if kind == _K_BLOB:
        name += 8
        length = 10
    elif kind == _K_RANGE:
        name += 24
        length = 3
    for i in range(length):
        store8(addresses[_A_NAMES] + name_at + i, load8(name + i))
    copy(addresses[_A_VALUES] + value_at, value, size)
    store32(addresses[_A_NAME_OFFSETS] + 4 * (pair + 1), name_at + length)
    store32(addresses[_A_VALUE_OFFSETS] + 4 * (pair + 1), value_at + size)
    return name_at + length, value_at + size


@kernel
def _begin_buffers(count: int, pairs: int, addresses: Any) -> None:
    """The first offset of each column, and bitmaps that say that everything is there."""
    store32(addresses[_A_KEY_OFFSETS], 0)
    store32(addresses[_A_PAIR_OFFSETS], 0)
    store32(addresses[_A_NAME_OFFSETS], 0)
    store32(addresses[_A_VALUE_OFFSETS], 0)
    for bitmap, bits in ((_A_TIME_VALID, count), (_A_NULLS, pairs), (_A_PAIRS_VALID, count)):
        if addresses[bitmap]:
            for byte in range((bits + 7) >> 3):
                store8(addresses[bitmap] + byte, 255)


@kernel
def fill(rows: Any, count: int, pairs_count: int, addresses: Any) -> None:
    """Fills the buffers at `addresses` from the first `count` rows."""
    _begin_buffers(count, pairs_count, addresses)
    key_at = 0
    pair = 0
    name_at = 0
    value_at = 0
    timed = addresses[_A_TIME] != 0
    for row in range(count):
        kind = rows[row, 0] & 7
        key_size = rows[row, 3] & _NULL
        store64(addresses[_A_SEQUENCE] + 8 * row, rows[row, 1])
        store32(addresses[_A_SHARD] + 4 * row, rows[row, 3] >> 32)
        if timed:
            store64(addresses[_A_TIME] + 8 * row, rows[row, 6])
            if rows[row, 6] == -(2**63):
                _clear_bit(addresses[_A_TIME_VALID], row)
        _copy_short(addresses[_A_KEYS] + key_at, rows[row, 2], key_size)
        key_at += key_size
        store32(addresses[_A_KEY_OFFSETS] + 4 * (row + 1), key_at)
        size = rows[row, 5] & _NULL
        if kind == _K_CODEC:
            pairs = rows[row, 5] >> 32
            name_at, value_at = _fill_codec(rows[row, 4], pairs, pair, name_at, value_at, addresses)
            pair += pairs
        elif kind == _K_DELETE:
            _clear_bit(addresses[_A_PAIRS_VALID], row)
        elif kind == _K_ENTITY:
            name_at, value_at = _fill_entity(rows[row, 4], size, pair, name_at, value_at, addresses)
            pair += rows[row, 5] >> 32
        else:
            name_at, value_at = _fill_single(kind, rows[row, 4], size, pair, name_at, value_at, addresses)
            pair += 1
        store32(addresses[_A_PAIR_OFFSETS] + 4 * (row + 1), pair)


@kernel
def _fill_words(rows: Any, count: int, operations: int, tables: int) -> None:
    """Each row's operation and table as indices; an address of 0 leaves one out."""
    for row in range(count):
        kind = rows[row, 0] & 255
        if operations:
            operation = 2 if kind == _K_DELETE else (3 if kind == _K_RANGE else (1 if kind & _K_MERGE else 0))
            store8(operations + row, operation)
        if tables:
            store32(tables + 4 * row, rows[row, 0] >> 8)


class _Constants:
    """Columns whose every row is the same, as slices of arrays that grow by doubling and are made once."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[Any, Any], pa.Array[Any]] = {}

    def rows(self, value: Any, kind: pa.DataType, count: int) -> pa.Array[Any]:
        made = self._arrays.get((value, kind))
        if made is None or len(made) < count:
            size = max(_CONSTANT_ROWS, 1 << max(count - 1, 1).bit_length())
            if value is not None:
                made = _arrow.repeat(pa.scalar(value, kind), size)
            else:
                made = _no_pairs(size) if kind == PAIRS_TYPE else _arrow.nulls(size, kind)
            self._arrays[value, kind] = made
        return made.slice(0, count)


def _no_pairs(count: int) -> pa.Array[Any]:
    """NULL in every row. Arrow's own array of these has room for a pair in each row, which its slices carry along."""
    offsets = _arrow.py_buffer(np.zeros(count + 1, np.int32))
    nothing = _arrow.py_buffer(np.zeros((count + 7) // 8, np.uint8))
    entries = PAIRS_TYPE.key_field, PAIRS_TYPE.item_field
    return _array(PAIRS_TYPE, count, [nothing, offsets], count, [_arrow.array([], pa.struct(entries))])


_constants: Final = _Constants()
_ENTRIES: Final = pa.struct([PAIRS_TYPE.key_field, PAIRS_TYPE.item_field])
_OPERATIONS: Final = pa.array(OPERATION_NAMES, pa.string())
_OPERATION_OF_BIT: Final = {1 << i: name for i, name in enumerate(OPERATION_NAMES)}


class _Layout:
    """One allocation, cut into the buffers of a batch at 64-byte borders."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._total = 0

    def add(self, name: int, size: int) -> None:
        self._starts[name] = self._total
        self._sizes[name] = size
        self._total += (size + 63) & ~63

    def allocate(self, addresses: npt.NDArray[np.int64]) -> dict[int, pa.Buffer]:
        whole = pa.allocate_buffer(self._total)
        for name, start in self._starts.items():
            addresses[name] = whole.address + start
        return {name: whole.slice(start, self._sizes[name]) for name, start in self._starts.items()}


def _layout(sums: npt.NDArray[np.int64]) -> _Layout:
    rows, pairs = int(sums[Sum.ROWS]), int(sums[Sum.PAIRS])
    layout = _Layout()
    for name, size in (
        (_A_SEQUENCE, 8 * rows),
        (_A_SHARD, 4 * rows),
        (_A_KEY_OFFSETS, 4 * rows + 4),
        (_A_KEYS, int(sums[Sum.KEY_BYTES])),
        (_A_PAIR_OFFSETS, 4 * rows + 4),
        (_A_NAME_OFFSETS, 4 * pairs + 4),
        (_A_NAMES, int(sums[Sum.NAME_BYTES])),
        (_A_VALUE_OFFSETS, 4 * pairs + 4),
        (_A_VALUES, int(sums[Sum.VALUE_BYTES])),
    ):
        layout.add(name, size)
    untimed = int(sums[Sum.UNTIMED])
    if untimed < rows:
        layout.add(_A_TIME, 8 * rows)
    for name, bits, needed in (
        (_A_TIME_VALID, rows, 0 < untimed < rows),
        (_A_NULLS, pairs, sums[Sum.NULLS]),
        (_A_PAIRS_VALID, rows, sums[Sum.DELETES]),
    ):
        if needed:
            layout.add(name, (bits + 7) // 8)
    return layout


def _array(kind: pa.DataType, length: int, buffers: list[pa.Buffer | None], nulls: int = 0,
           children: list[pa.Array[Any]] | None = None) -> pa.Array[Any]:  # fmt: skip
    return pa.Array.from_buffers(kind, length, buffers, nulls, 0, children)


def build(
    rows: npt.NDArray[np.int64], sums: npt.NDArray[np.int64], era: int, tables: pa.Array[Any], shards: int
) -> pa.RecordBatch:
    """The updates that `measure` noted, as a batch."""
    count, pairs = int(sums[Sum.ROWS]), int(sums[Sum.PAIRS])
    addresses = np.zeros(_A_WORDS, dtype=np.int64)
    buffers = _layout(sums).allocate(addresses)
    fill(rows, count, pairs, addresses)

    names = _array(pa.string(), pairs, [None, buffers[_A_NAME_OFFSETS], buffers[_A_NAMES]])
    nulls = int(sums[Sum.NULLS])
    values_buffers = [buffers.get(_A_NULLS), buffers[_A_VALUE_OFFSETS], buffers[_A_VALUES]]
    values = _array(pa.binary(), pairs, values_buffers, nulls)
    entries = _array(_ENTRIES, pairs, [None], 0, [names, values])
    deletes = int(sums[Sum.DELETES])
    maps = _array(PAIRS_TYPE, count, [buffers.get(_A_PAIRS_VALID), buffers[_A_PAIR_OFFSETS]], deletes, [entries])
    keys = _array(pa.binary(), count, [None, buffers[_A_KEY_OFFSETS], buffers[_A_KEYS]])
    table, operation = _words(rows, sums, tables)
    return pa.RecordBatch.from_arrays(
        [
            _shards(buffers[_A_SHARD], int(addresses[_A_SHARD]), sums, keys, shards),
            _constants.rows(era, pa.int32(), count),
            _array(pa.int64(), count, [None, buffers[_A_SEQUENCE]]),
            _constants.rows(0, pa.int32(), count),
            _times(buffers, sums),
            table,
            operation,
            keys,
            maps,
            _constants.rows(None, PAIRS_TYPE, count),
        ],
        schema=UPDATE_SCHEMA,
    )


def _times(buffers: dict[int, pa.Buffer], sums: npt.NDArray[np.int64]) -> pa.Array[Any]:
    count, untimed = int(sums[Sum.ROWS]), int(sums[Sum.UNTIMED])
    kind = UPDATE_SCHEMA.field("committed_at").type
    if untimed == count:
        return _constants.rows(None, kind, count)
    return _array(kind, count, [buffers.get(_A_TIME_VALID), buffers[_A_TIME]], untimed)


def _shards(
    buffer: pa.Buffer, address: int, sums: npt.NDArray[np.int64], keys: pa.Array[Any], shards: int
) -> pa.Array[Any]:
    """What the headers say; rows without one are sharded by their key."""
    count = int(sums[Sum.ROWS])
    if sums[Sum.UNSHARDED]:
        told = np.frombuffer(cast(Any, (ctypes.c_int32 * count).from_address(address)), np.int32)
        untold = told < 0
        told[untold] = shards_of([keys], shards)[untold]
    return _array(pa.int32(), count, [None, buffer])


def _words(
    rows: npt.NDArray[np.int64], sums: npt.NDArray[np.int64], tables: pa.Array[Any]
) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """The columns `table` and `operation`."""
    count = int(sums[Sum.ROWS])
    seen = int(sums[Sum.TABLES])
    same_operation = _OPERATION_OF_BIT.get(int(sums[Sum.OPERATIONS]))
    same_table = seen.bit_length() - 1 if seen > 0 and seen & (seen - 1) == 0 and seen < 1 << 62 else None
    operations = np.empty(0 if same_operation else count, np.uint8)
    indices = np.empty(0 if same_table is not None else count, np.int32)
    if len(operations) or len(indices):
        _fill_words(
            rows,
            count,
            operations.ctypes.data if len(operations) else 0,
            indices.ctypes.data if len(indices) else 0,
        )
    table = tables.take(_arrow.array(indices)) if len(indices) else None
    if table is None:
        table = _constants.rows(tables[same_table or 0].as_py(), pa.string(), count)
    if same_operation:
        return table, _constants.rows(same_operation, pa.string(), count)
    return table, _OPERATIONS.take(_arrow.array(operations))
