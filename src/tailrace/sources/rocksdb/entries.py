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

from tailrace.sources.memory import copy, load8, load16, load32, load64, store64
from tailrace.updates.header import HEADER_FIXED_BYTES
from tailrace.updates.kernels import inlined, kernel

BATCH_HEADER_BYTES: Final = 12
ROW_COLUMNS: Final = 8
ROW_OVERHEAD_BYTES: Final = 48  # what a row takes in the columns of fixed width, about
PAIR_OVERHEAD_BYTES: Final = 8
CODEC_MAGIC: Final = 0x015054F5
HEADER_MAGIC: Final = 0x014854F5
_NULL: Final = 0xFFFFFFFF
MAX_COLUMN_BYTES: Final = 2**31 - 1  # what 32-bit offsets can address


class Kind(enum.IntEnum):
    """What the bytes of a row's value are; with `MERGE` set, its operation is `merge`."""

    FOREIGN = 0
    CODEC = 1
    ENTITY = 2  # wide columns
    BLOB = 3  # a reference into a blob file of the stacked BlobDB
    DELETE = 4
    RANGE = 5  # the value is the end key
    MERGE = 8


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
_K_FOREIGN, _K_CODEC, _K_ENTITY, _K_BLOB, _K_DELETE, _K_RANGE, _K_MERGE = (int(k) for k in Kind)
_F_UNKNOWN, _F_HEADER = int(Family.UNKNOWN), int(Family.HEADER)

# What a tag stands for: the shape of its entry.
_BAD, _PUT, _DELETION, _MERGING, _RANGING, _LOG_DATA, _NO_OP, _TRANSACTION, _BLOB_INDEX, _WIDE, _TIMED = range(11)


def _shapes() -> Any:
    shapes = np.zeros(256, dtype=np.int64)
    for tags, shape in (
        ((0x01, 0x05), _PUT),
        ((0x00, 0x04, 0x07, 0x08), _DELETION),
        ((0x02, 0x06), _MERGING),
        ((0x0F, 0x0E), _RANGING),
        ((0x03,), _LOG_DATA),
        ((0x0D,), _NO_OP),
        ((0x09, 0x0A, 0x0B, 0x0C, 0x12, 0x13, 0x15), _TRANSACTION),
        ((0x11, 0x10), _BLOB_INDEX),
        ((0x16, 0x17), _WIDE),
        ((0x18, 0x19), _TIMED),
    ):
        for tag in tags:
            shapes[tag] = shape
    for tag in (0x05, 0x04, 0x08, 0x06, 0x0E, 0x10, 0x17, 0x19):
        shapes[tag] |= 16  # names a column family
    return shapes


_SHAPES: Final = _shapes()

_H_LEFT, _H_TIME, _H_STEP, _H_SHARD = range(4)  # a header: operations left, commit time, stride, next shard's address
_UNTIMED_MARK: Final = -(2**63)
_STOPPED: Final = -(2**62)


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
            return value & _NULL, at
        shift += 7
    return 0, -1


@kernel
def holds_transactions(start: int, end: int) -> bool:
    """Whether a write batch holds parts of prepared transactions; False where it does not parse."""
    at = start + BATCH_HEADER_BYTES
    while at < end:
        shape = _SHAPES[load8(at)]
        at += 1
        if shape & 16:
            _family, at = varint(at, end)
            if at < 0:
                return False
        shape &= 15
        if shape == _TRANSACTION:
            return True
        if shape == _BAD:
            return False
        texts = 0 if shape == _NO_OP else (1 if shape in (_DELETION, _LOG_DATA) else 2)
        for _ in range(texts):
            size, at = varint(at, end)
            if at < 0:
                return False
            at += size
    return False


@kernel
def is_utf8(at: int, end: int) -> bool:
    """Whether the bytes are valid UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    while at < end:
        if end - at >= 8 and (load64(at) & -0x7F7F7F7F7F7F7F80) == 0:
            at += 8
            continue
        first = load8(at)
        if first < 0x80:
            at += 1
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        more = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if end - at <= more:
            return False
        second = load8(at + 1)
        low = 0xA0 if first == 0xE0 else (0x90 if first == 0xF0 else 0x80)
        high = 0x9F if first == 0xED else (0x8F if first == 0xF4 else 0xBF)
        if second < low or second > high:
            return False
        for i in range(2, more + 1):
            if (load8(at + i) & 0xC0) != 0x80:
                return False
        at += more + 1
    return True


@kernel
def codec_shape(at: int, size: int) -> tuple[int, int, int]:
    """(pairs, bytes of their names, NULL values) of a value in the pairs codec; pairs of -1: foreign."""
    if size < 6 or load32(at) != CODEC_MAGIC:
        return -1, 0, 0
    pairs = load16(at + 4)
    table = at + 6
    names = table + 6 * pairs
    if 6 + 6 * pairs > size:
        return -1, 0, 0
    name_bytes = 0
    value_bytes = 0
    nulls = 0
    for i in range(pairs):
        entry = table + 6 * i
        name_bytes += load16(entry)
        length = load32(entry + 2)
        if length == _NULL:
            nulls += 1
        else:
            value_bytes += length
    if 6 + 6 * pairs + name_bytes + value_bytes != size:
        return -1, 0, 0
    ascii_only = True
    name = names
    names_end = names + name_bytes
    while names_end - name >= 8:
        if (load64(name) & -0x7F7F7F7F7F7F7F80) != 0:
            ascii_only = False
            break
        name += 8
    while ascii_only and name < names_end:
        ascii_only = load8(name) < 128
        name += 1
    if not ascii_only:
        name = names
        for i in range(pairs):
            length = load16(table + 6 * i)
            if not is_utf8(name, name + length):
                return -1, 0, 0
            name += length
    return pairs, name_bytes, nulls


@kernel
def entity_shape(at: int, size: int) -> tuple[int, int, int]:
    """(columns, bytes of their names, bytes of their values) of a wide-column entity; columns of -1: not one.

    Version u32 = 1, count, then per column name and value size, then all values; the numbers are varints. The default
    column has an empty name and becomes the pair `value`.
    """
    end = at + size
    version, at = varint(at, end)
    if at < 0 or version != 1:
        return -1, 0, 0
    count, at = varint(at, end)
    if at < 0:
        return -1, 0, 0
    name_bytes = 0
    value_bytes = 0
    for _ in range(count):
        length, at = varint(at, end)
        if at < 0 or length > end - at or not is_utf8(at, at + length):
            return -1, 0, 0
        name_bytes += length if length else 5
        length, at = varint(at + length, end)
        if at < 0:
            return -1, 0, 0
        value_bytes += length
    if value_bytes != end - at:
        return -1, 0, 0
    return count, name_bytes, value_bytes


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


@kernel
def _value_shape(shape: int, value: int, size: int) -> tuple[int, int, int, int, int]:
    """(kind, pairs, bytes of names, bytes of values, NULLs) of what a data entry holds."""
    if shape == _DELETION:
        return _K_DELETE, 0, 0, 0, 0
    if shape == _RANGING:
        return _K_RANGE, 1, 3, size, 0
    if shape == _BLOB_INDEX:
        return _K_BLOB, 1, 10, size, 0
    if shape == _WIDE:
        pairs, name_bytes, value_bytes = entity_shape(value, size)
        if pairs >= 0:
            return _K_ENTITY, pairs, name_bytes, value_bytes, 0
        return _K_FOREIGN, 1, 5, size, 0
    pairs, name_bytes, nulls = codec_shape(value, size)
    kind = _K_CODEC if pairs >= 0 else _K_FOREIGN
    if shape == _MERGING:
        kind |= _K_MERGE
    if pairs >= 0:
        return kind, pairs, name_bytes, size - 6 - 6 * pairs - name_bytes, nulls
    return kind, 1, 5, size, 0


@inlined
def _operation_bit(kind: int) -> int:
    if kind & _K_MERGE:
        return 2
    if kind == _K_DELETE:
        return 4
    return 8 if kind == _K_RANGE else 1


@inlined
def _note(rows: int, sums: int, header: int, table: int, shape: int, key: int, key_size: int, value: int, size: int,
          sequence: int, shards: int) -> None:  # fmt: skip
    """Notes one update in the table of rows; one whose shard is all of them takes a row for each."""
    kind, pairs, name_bytes, value_bytes, nulls = _value_shape(shape, value, size)
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
    _set(sums, _OPERATIONS, _get(sums, _OPERATIONS) | _operation_bit(kind))
    _add(sums, _UNTIMED, times if committed_at == _UNTIMED_MARK else 0)
    _add(sums, _UNSHARDED, 1 if shard < 0 and times == 1 else 0)


@kernel
def _entry(at: int, end: int, sequence: int, families: int, family_count: int, shards: int, after: int, rows: int,
           capacity: int, sums: int, header: int) -> int:  # fmt: skip
    """Walks one entry: where the next begins, negative (its complement) if the entry took no sequence number.

    Below -2^62 it is -2^62 - 1 - outcome: the entry cannot be taken.
    """
    shape = _SHAPES[load8(at)]
    at += 1
    family = 0
    if shape & 16:
        shape &= 15
        family, at = varint(at, end)
        if at < 0:
            return _STOPPED - _SHORT
    if shape == _NO_OP:
        return ~at
    if shape == _BAD:
        return _STOPPED - _TAG
    if shape == _TRANSACTION:
        return _STOPPED - _TWO_PHASE
    key_size, key = varint(at, end)
    if key < 0 or key_size > end - key:
        return _STOPPED - _SHORT
    at = key + key_size
    if shape == _LOG_DATA:
        return ~at
    value = at
    size = 0
    if shape != _DELETION:
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
    if shape == _TIMED:
        if size < 8:
            return _STOPPED - _SHORT
        size -= 8  # the time of the write, packed behind the value
    stamp = load64(families + 16 * family + 8)  # user-defined timestamps are the tail of every key
    if stamp > key_size:
        return _STOPPED - _SHORT
    if shape == _RANGING:
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
