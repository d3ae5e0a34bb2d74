"""The logical layer of a RocksDB log: write batches, and the entries in them. This is the first of two passes.

A logical record is a write batch: sequence u64, count u32, then entries, each a tag byte, a column family unless it is
the default one, and length-prefixed key and value. `measure` walks the entries of many records, notes each update in a
table of rows (where its key and value lie, its sequence, shard and commit time) and sums up what the Arrow columns
will hold. The second pass (`columns`) then fills buffers of exactly that size.

Sequence numbers: in a log written with the default policy every data entry takes one, whatever its kind; log data
and no-ops take none. Prepared transactions never come here: `prepared` rewrites their records so that the entries of a
transaction stand where it was committed, which is also where RocksDB gives them their sequence numbers.

A header record of the embedded store (`updates.header`) takes a sequence number, and names the commit time and shards
of the entries after it. `measure` takes whole records only, and never splits one.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import numpy as np

from tailrace.sources.memory import copy, load8, load32, load64, store64
from tailrace.sources.rocksdb.tags import (
    BAD,
    BATCH_HEADER_BYTES,
    DELETION,
    LOG_DATA,
    NO_OP,
    RANGING,
    SHAPES,
    TIMED,
    TRANSACTION,
    WITH_FAMILY,
    varint,
)
from tailrace.sources.rocksdb.values import Kind, operation_bit, value_shape
from tailrace.updates.header import HEADER_FIXED_BYTES
from tailrace.updates.kernels import inlined, kernel

ROW_COLUMNS: Final = 8
ROW_OVERHEAD_BYTES: Final = 48  # what a row takes in the columns of fixed width, about
PAIR_OVERHEAD_BYTES: Final = 8
HEADER_MAGIC: Final = 0x014854F5
MAX_COLUMN_BYTES: Final = 2**31 - 1  # what 32-bit offsets can address


class Family(enum.IntEnum):
    """What a column family id means in the table of families; zero and above is an index of table names."""

    UNKNOWN = -1
    HEADER = -2


class Outcome(enum.IntEnum):
    """Why `measure` stopped."""

    DONE = 0  # all records were taken
    SIZE = 1  # the next record would exceed the wanted size
    HORIZON = 2  # the next record is not safe yet
    ROWS_FULL = 3  # the table of rows is too small for the next record
    UNKNOWN_FAMILY = 4  # of id ARGUMENT
    TWO_PHASE = 5  # the record holds parts of prepared transactions
    GAP = 6  # the record's sequence is greater than expected
    BACKWARDS = 7  # it is lower
    SHORT = 8  # an entry reaches beyond its record
    TAG = 9  # an unknown tag
    COUNT = 10  # the record says it holds another number of entries
    HEADER = 11  # a header that contradicts what follows
    HEADER_VERSION = 12
    TOO_LARGE = 13  # a single record that Arrow's 32-bit offsets cannot hold


class Sum(enum.IntEnum):
    """What `measure` keeps from call to call, and sums up."""

    TAKEN = 0  # records taken
    NEXT_SEQUENCE = 1  # what the next record must begin with; negative: anything
    ROWS = 2
    KEY_BYTES = 3
    PAIRS = 4
    NAME_BYTES = 5
    VALUE_BYTES = 6
    NULLS = 7  # pairs whose value is NULL
    DELETES = 8  # rows without pairs
    UNTIMED = 9  # rows without commit time
    UNSHARDED = 10  # rows whose shard is to be hashed from their key
    FOREIGN = 11
    TABLES = 12  # bit t: a row of table t exists (tables of 62 and above share bit 62)
    OPERATIONS = 13  # bits: 1 put, 2 merge, 4 delete, 8 delete_range
    ARGUMENT = 14
    FOUND = 15  # the sequence that the record at which it stopped begins with
    WORDS = 16


_W: Final = int(Sum.WORDS)
(
    _TAKEN,
    _NEXT,
    _ROWS,
    _KEY_BYTES,
    _PAIRS,
    _NAME_BYTES,
    _VALUE_BYTES,
    _NULLS,
    _DELETES,
    _UNTIMED,
    _UNSHARDED,
    _FOREIGN,
    _TABLES,
    _OPERATIONS,
    _ARGUMENT,
    _FOUND,
) = (int(s) for s in Sum if s is not Sum.WORDS)
(
    _DONE,
    _SIZE,
    _HORIZON,
    _ROWS_FULL,
    _UNKNOWN_FAMILY,
    _TWO_PHASE,
    _GAP,
    _BACKWARDS,
    _SHORT,
    _TAG,
    _COUNT,
    _HEADER,
    _HEADER_VERSION,
    _TOO_LARGE,
) = (int(o) for o in Outcome)
_K_FOREIGN, _K_DELETE, _K_RANGE, _K_MERGE = (int(k) for k in (Kind.FOREIGN, Kind.DELETE, Kind.RANGE, Kind.MERGE))
_F_UNKNOWN, _F_HEADER = int(Family.UNKNOWN), int(Family.HEADER)

_H_LEFT, _H_TIME, _H_STEP, _H_SHARD = range(4)  # a header: operations left, commit time, stride, next shard's address
_UNTIMED_MARK: Final = -(2**63)
_STOPPED: Final = -(2**62)


@inlined
def _get(words: int, word: int) -> int:
    return int(load64(words + 8 * word))


@inlined
def _set(words: int, word: int, value: int) -> None:
    store64(words + 8 * word, value)


@inlined
def _add(words: int, word: int, value: int) -> None:
    store64(words + 8 * word, load64(words + 8 * word) + value)


@kernel
def _read_header(at: int, size: int, header: int) -> int:
    """Notes a store's header record in the four words at `header`."""
    if size < 4 or (load32(at) & 0xFFFFFF) != (HEADER_MAGIC & 0xFFFFFF):
        return _HEADER
    if load8(at + 3) != 1:
        return _HEADER_VERSION
    if size < HEADER_FIXED_BYTES or _get(header, _H_LEFT) != 0:
        return _HEADER
    count = load32(at + 20)
    shard_count = load32(at + 24)
    if size != HEADER_FIXED_BYTES + 4 * shard_count or (shard_count != 1 and shard_count != count):
        return _HEADER
    _set(header, _H_LEFT, count)
    _set(header, _H_TIME, load64(at + 4))
    _set(header, _H_STEP, 4 if shard_count == count else 0)
    _set(header, _H_SHARD, at + HEADER_FIXED_BYTES)
    return -1


@inlined
def _note(rows: int, sums: int, header: int, table: int, shape: int, key: int, key_size: int, value: int, size: int,
          sequence: int, shards: int) -> None:  # fmt: skip
    """Notes one update in the table of rows; one whose shard is all of them takes a row for each."""
    kind, pairs, name_bytes, value_bytes, nulls = value_shape(shape, value, size)
    shard = -1
    committed_at = _UNTIMED_MARK
    if _get(header, _H_LEFT) > 0:
        _add(header, _H_LEFT, -1)
        committed_at = _get(header, _H_TIME)
        word = load32(_get(header, _H_SHARD))
        shard = word - ((word & 0x80000000) << 1)
        _add(header, _H_SHARD, _get(header, _H_STEP))
    times = shards if kind == _K_RANGE and shard < 0 else 1
    row = rows + 8 * ROW_COLUMNS * _get(sums, _ROWS)
    for i in range(times):
        _set(row, 0, kind | (table << 8))
        _set(row, 1, sequence)
        _set(row, 2, key)
        _set(row, 3, key_size | ((i if times > 1 else shard) << 32))
        _set(row, 4, value)
        _set(row, 5, size | (pairs << 32))
        _set(row, 6, committed_at)
        _set(row, 7, name_bytes)
        row += 8 * ROW_COLUMNS
    _add(sums, _ROWS, times)
    _add(sums, _KEY_BYTES, times * key_size)
    _add(sums, _PAIRS, times * pairs)
    _add(sums, _NAME_BYTES, times * name_bytes)
    _add(sums, _VALUE_BYTES, times * value_bytes)
    _add(sums, _NULLS, nulls)
    _add(sums, _DELETES, 1 if kind == _K_DELETE else 0)
    _add(sums, _FOREIGN, 1 if (kind & ~_K_MERGE) == _K_FOREIGN else 0)
    _set(sums, _TABLES, _get(sums, _TABLES) | (1 << min(table, 62)))
    _set(sums, _OPERATIONS, _get(sums, _OPERATIONS) | operation_bit(kind))
    _add(sums, _UNTIMED, times if committed_at == _UNTIMED_MARK else 0)
    _add(sums, _UNSHARDED, 1 if shard < 0 and times == 1 else 0)


@kernel
def _entry(at: int, end: int, sequence: int, families: int, family_count: int, shards: int, after: int, rows: int,
           capacity: int, sums: int, header: int) -> int:  # fmt: skip
    """Walks one entry: where the next begins, negative (its complement) if the entry took no sequence number.

    Below -2^62 it is -2^62 - 1 - outcome: the entry cannot be taken.
    """
    shape = SHAPES[load8(at)]
    at += 1
    family = 0
    if shape & WITH_FAMILY:
        shape &= WITH_FAMILY - 1
        family, at = varint(at, end)
        if at < 0:
            return _STOPPED - _SHORT
    if shape == NO_OP:
        return ~at
    if shape == BAD:
        return _STOPPED - _TAG
    if shape == TRANSACTION:
        return _STOPPED - _TWO_PHASE
    key_size, key = varint(at, end)
    if key < 0 or key_size > end - key:
        return _STOPPED - _SHORT
    at = key + key_size
    if shape == LOG_DATA:
        return ~at
    value = at
    size = 0
    if shape != DELETION:
        size, value = varint(at, end)
        if value < 0 or size > end - value:
            return _STOPPED - _SHORT
        at = value + size
    table = _F_UNKNOWN
    if family < family_count:
        table = load64(families + 16 * family)
    if table == _F_UNKNOWN:
        _set(sums, _ARGUMENT, family)
        return _STOPPED - _UNKNOWN_FAMILY
    if table == _F_HEADER:
        outcome = _read_header(value, size, header)
        return at if outcome < 0 else _STOPPED - outcome
    if sequence <= after:
        if _get(header, _H_LEFT) > 0:
            _add(header, _H_LEFT, -1)
            _add(header, _H_SHARD, _get(header, _H_STEP))
        return at
    if _get(sums, _ROWS) + shards > capacity:
        return _STOPPED - _ROWS_FULL
    if shape == TIMED:
        if size < 8:
            return _STOPPED - _SHORT
        size -= 8  # the time of the write, packed behind the value
    stamp = load64(families + 16 * family + 8)  # user-defined timestamps are the tail of every key
    if stamp > key_size:
        return _STOPPED - _SHORT
    if shape == RANGING:
        size = max(size - stamp, 0)
    _note(rows, sums, header, table, shape, key, key_size - stamp, value, size, sequence, shards)
    return at


@kernel
def _record(start: int, end: int, families: int, family_count: int, shards: int, after: int, rows: int,
            capacity: int, sums: int, header: int) -> int:  # fmt: skip
    """Walks the entries of one record; -1, or the outcome that stops it."""
    if end - start < BATCH_HEADER_BYTES:
        return _SHORT
    sequence = load64(start)
    count = load32(start + 8)
    expected = _get(sums, _NEXT)
    _set(sums, _FOUND, sequence)
    if expected >= 0 and sequence > expected:
        return _GAP
    at = start + BATCH_HEADER_BYTES
    taken = 0
    _set(header, _H_LEFT, 0)
    while at < end:
        at = _entry(at, end, sequence + taken, families, family_count, shards, after, rows, capacity, sums, header)
        if at >= 0:
            taken += 1
        elif at <= _STOPPED:
            return _STOPPED - at
        else:
            at = ~at
    if taken != count:
        return _COUNT
    if _get(header, _H_LEFT) != 0:
        return _HEADER
    if expected >= 0 and sequence < expected:
        # RocksDB may open a log with an empty batch that repeats the last sequence number.
        return _BACKWARDS if taken else -1
    _set(sums, _NEXT, sequence + taken)
    return -1


@kernel
def _verdict(outcome: int, sums: int, before: int, horizon: int, max_bytes: int) -> int:
    """Whether a record that makes sense may be taken too: -1, or why not."""
    if outcome >= 0:
        return outcome
    if _get(sums, _NEXT) - 1 > horizon:
        return _HORIZON
    key_bytes, name_bytes, value_bytes = _get(sums, _KEY_BYTES), _get(sums, _NAME_BYTES), _get(sums, _VALUE_BYTES)
    overhead = _get(sums, _ROWS) * ROW_OVERHEAD_BYTES + _get(sums, _PAIRS) * PAIR_OVERHEAD_BYTES
    if key_bytes + name_bytes + value_bytes + overhead > max_bytes and _get(before, _ROWS) > 0:
        return _SIZE
    return _TOO_LARGE if max(key_bytes, name_bytes, value_bytes) > MAX_COLUMN_BYTES else -1


@kernel
def measure(address: int, records: Any, last: int, families: Any, shards: int, after: int, horizon: int,
            max_bytes: int, rows: Any, sums: Any) -> int:  # fmt: skip
    """Takes records from `sums[TAKEN]` up to `last` as far as they fit and are safe; returns why it stopped.

    Updates up to and with sequence `after` are left out. `sums` speaks of whole records only, but for ARGUMENT and
    FOUND.
    """
    scratch = np.zeros(_W + 4, dtype=np.int64)
    before = scratch.ctypes.data
    header = before + 8 * _W
    summed = sums.ctypes.data
    for record in range(sums[_TAKEN], last):
        copy(before, summed, 8 * _W)
        start = address + records[record, 0]
        outcome = _record(start, start + records[record, 1], families.ctypes.data, families.shape[0], shards, after,
                          rows.ctypes.data, rows.shape[0], summed, header)  # fmt: skip
        outcome = _verdict(outcome, summed, before, horizon, max_bytes)
        if outcome >= 0:
            argument = sums[_ARGUMENT]
            found = sums[_FOUND]
            copy(summed, before, 8 * _W)
            sums[_ARGUMENT] = argument
            sums[_FOUND] = found
            return outcome
        sums[_TAKEN] = record + 1
    return _DONE
