"""What a caller writes, checked and laid out for the commit thread.

A caller hands over `Operation`s (made by `put`, `delete` and `delete_range`) or a record batch of them. Everything that
can be wrong with an operation is found here, in the caller's own thread: RocksDB takes a batch into its log before it
finds out, and then refuses all further writes. `Prepared` is one atomic write in columns, as plain lists, because the
commit thread does nothing but loop over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from tailrace.errors import UpdateInvalid, UpdateTooLarge
from tailrace.store.options import TABLE_NAME, StoreOptions
from tailrace.updates.pairs import encode_pairs, encode_pairs_array
from tailrace.updates.position import Position
from tailrace.updates.sharding import shard_of, shards_of
from tailrace.wire.store_messages import (
    DELETE,
    DELETE_RANGE,
    OPERATION_NAMES,
    OPERATIONS_SCHEMA,
    PUT,
    Operation,
)

Pairs = Mapping[str, bytes | str | None]
ALL_SHARDS = -1  # the shard of a range: its keys may lie in any


class WriteResult(NamedTuple):
    """Where a write stands in the log: the sequences of its operations, and the position of the last one."""

    first: int
    last: int
    position: Position


def put(table: str, key: bytes, value: Pairs | bytes, *, shard: int | None = None) -> Operation:
    """Stores pairs, or a value of the caller's own making, under a key."""
    return _operation(PUT, table, key, value if isinstance(value, bytes) else encode_pairs(value), shard)


def delete(table: str, key: bytes, *, shard: int | None = None) -> Operation:
    return _operation(DELETE, table, key, None, shard)


def delete_range(table: str, begin: bytes, end: bytes, *, shard: int | None = None) -> Operation:
    """Deletes all keys in [begin, end)."""
    return _operation(DELETE_RANGE, table, begin, end, shard)


def _operation(kind: int, table: str, key: bytes, value: bytes | None, shard: int | None) -> Operation:
    operation = Operation(kind, table, key, value, shard)
    require_types(operation)
    return operation


def require_types(operation: Operation) -> None:
    """Refuses what no message can carry, as it would take along the other writes that travel in the same one.

    The types are exact: msgpack knows no subclasses. All else is for `prepare` to judge, by the store's options.
    """
    kind, table, key, value, shard = astuple(operation)
    if type(kind) is not int or not PUT <= kind <= DELETE_RANGE:
        raise UpdateInvalid(reason=f"there is no operation number {kind!r}")
    if type(table) is not str or not table.isascii():
        raise _bad_table(table)
    if type(key) is not bytes:
        raise UpdateInvalid(reason=f"a key in table {table!r} is {type(key).__name__}; a key is bytes")
    if value is not None and type(value) is not bytes:
        raise UpdateInvalid(reason=f"a value in table {table!r} is {type(value).__name__}; it is pairs or bytes")
    if shard is not None and (type(shard) is not int or shard.bit_length() > 31):
        raise UpdateInvalid(reason=f"a shard in table {table!r} is {shard!r}; it is an int below the store's shards")


@dataclass(slots=True)
class Prepared:
    """One atomic write; all columns are equally long. `kinds` None means that all are puts."""

    kinds: list[int] | None
    tables: list[str]
    keys: list[bytes]
    values: list[bytes | None]
    shards: npt.NDArray[np.int32]
    size_bytes: int

    def __len__(self) -> int:
        return len(self.keys)


def prepare(operations: Sequence[Operation], options: StoreOptions) -> Prepared:
    """Checks one atomic write."""
    _require_count(len(operations), options)
    shards = np.zeros(len(operations), np.int32)
    size = 0
    for index, operation in enumerate(operations):
        _require_operation(operation, options)
        size += len(operation.key) + len(operation.value or b"")
        shards[index] = _shard(operation, options.shards)
    _require_size(size, options)
    return Prepared(
        [operation.operation for operation in operations],
        [operation.table for operation in operations],
        [operation.key for operation in operations],
        [operation.value for operation in operations],
        shards,
        size,
    )


def _require_operation(operation: Operation, options: StoreOptions) -> None:
    require_types(operation)
    key, value = operation.key, operation.value
    if not TABLE_NAME.match(operation.table) or operation.table.startswith("__"):
        raise _bad_table(operation.table)
    if len(key) > options.max_key_bytes:
        raise _key_too_long(operation.table, len(key), options)
    if len(key) + len(value or b"") > options.max_update_bytes:
        raise _too_large(operation.table, len(key) + len(value or b""), options)
    if operation.operation == PUT:
        if value is None:
            raise UpdateInvalid(reason=f"a put in table {operation.table!r} has neither pairs nor a value")
    elif operation.operation == DELETE_RANGE:
        _require_range(operation.table, key, value, options)
    elif value is not None:
        raise UpdateInvalid(reason=f"a delete in table {operation.table!r} has a value")


def _require_range(table: str, begin: bytes, end: bytes | None, options: StoreOptions) -> None:
    if end is None or end <= begin:
        raise UpdateInvalid(reason=f"a range in table {table!r} ends at {end!r}, not after its begin {begin!r}")
    if len(end) > options.max_key_bytes:
        raise _key_too_long(table, len(end), options)


def _shard(operation: Operation, shards: int) -> int:
    if operation.shard is not None:
        if not 0 <= operation.shard < shards:
            raise UpdateInvalid(reason=f"shard {operation.shard} is not one of the store's {shards}")
        return operation.shard
    if operation.operation == DELETE_RANGE:
        return ALL_SHARDS if shards > 1 else 0
    return shard_of([operation.key], shards) if shards > 1 else 0


def _require_count(count: int, options: StoreOptions) -> None:
    if count == 0:
        raise UpdateInvalid(reason="a write holds no operation")
    if count > options.max_write_operations:
        limit = options.max_write_operations
        raise UpdateInvalid(reason=f"a write holds {count} operations; store.max_write_operations is {limit}")


def _require_size(size: int, options: StoreOptions) -> None:
    if size > options.max_write_bytes:
        raise UpdateInvalid(reason=f"a write holds {size} bytes; store.max_write_bytes is {options.max_write_bytes}")


def _bad_table(table: str) -> UpdateInvalid:
    remedy = "a name has 1 to 128 letters, digits or _ . $ -, and does not begin with __"
    return UpdateInvalid(reason=f"{table!r} cannot be a table's name: {remedy}")


def _key_too_long(table: str, size: int, options: StoreOptions) -> UpdateInvalid:
    return UpdateInvalid(
        reason=f"a key of {size} bytes in table {table!r}; store.max_key_bytes is {options.max_key_bytes}"
    )


def _too_large(table: str, size: int, options: StoreOptions) -> UpdateTooLarge:
    return UpdateTooLarge(table=table, size=size, limit=options.max_update_bytes, setting="store.max_update_bytes")


# ---- record batches ------------------------------------------------------------------------------------------------


class Numbered(NamedTuple):
    """A write of a record batch under its number there: checked, or what is wrong with it."""

    number: int
    write: Prepared | UpdateInvalid | UpdateTooLarge


def prepare_batch(batch: pa.RecordBatch, options: StoreOptions) -> Iterator[Numbered]:
    """The writes in a record batch of `OPERATIONS_SCHEMA`; trailing columns that are all null may be missing."""
    columns = _columns(batch)
    numbers = np.asarray(columns["write"])
    if batch.num_rows == 0:
        return
    if (np.diff(numbers) < 0).any():
        raise UpdateInvalid(reason="the column 'write' falls; rows of one write stand together, in rising order")
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
    values = _values(columns)
    shards = _shards(columns, options)
    kinds = _kinds(columns)
    tables, keys, stored = columns["table"].to_pylist(), columns["key"].to_pylist(), values.to_pylist()
    lengths = _lengths(columns["key"]) + _lengths(values)
    suspicious = _suspicious_rows(columns, kinds, values, lengths, shards, options)
    for start, end in pairwise(starts):
        number = int(numbers[start])
        size = int(lengths[start:end].sum())
        try:
            _require_count(end - start, options)
            _require_size(size, options)
            for row in suspicious[np.searchsorted(suspicious, start) : np.searchsorted(suspicious, end)].tolist():
                kind = PUT if kinds is None else kinds[row]
                given = None if kind == DELETE_RANGE and shards[row] == ALL_SHARDS else int(shards[row])
                operation = Operation(kind, tables[row], keys[row], stored[row], given)
                _require_operation(operation, options)
                _shard(operation, options.shards)
        except (UpdateInvalid, UpdateTooLarge) as error:
            yield Numbered(number, error)
            continue
        part = None if kinds is None else kinds[start:end]
        yield Numbered(
            number, Prepared(part, tables[start:end], keys[start:end], stored[start:end], shards[start:end], size)
        )


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same writes in exactly `OPERATIONS_SCHEMA`."""
    columns = _columns(batch)
    arrays = [
        pa.nulls(batch.num_rows, field.type) if columns[field.name] is None else columns[field.name]
        for field in OPERATIONS_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=OPERATIONS_SCHEMA)


def count_writes(batch: pa.RecordBatch) -> int:
    """How many writes a record batch holds, whose numbers count 0, 1, ... without a gap."""
    numbers = np.asarray(batch.column("write"))
    if len(numbers) == 0:
        return 0
    steps = np.diff(numbers)
    if numbers[0] != 0 or (steps < 0).any() or (steps > 1).any():
        raise UpdateInvalid(reason="the column 'write' does not count 0, 1, ... by rows that stand together")
    return int(numbers[-1]) + 1


def _columns(batch: pa.RecordBatch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in OPERATIONS_SCHEMA:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            column: Any = batch.column(at)
            if pa.types.is_null(column.type):  # as columns without any value are made
                column = column.cast(field.type)
            if not column.type.equals(field.type):
                raise UpdateInvalid(reason=f"the column {field.name!r} is {column.type}, not {field.type}")
            if not field.nullable and column.null_count:
                raise UpdateInvalid(reason=f"the column {field.name!r} holds nulls")
            found[field.name] = column
        elif not field.nullable:
            raise UpdateInvalid(reason=f"the column {field.name!r} is missing")
        else:
            found[field.name] = None
    return found


def _values(columns: dict[str, Any]) -> Any:
    pairs, values = columns["pairs"], columns["value"]
    if pairs is None or pairs.null_count == len(pairs):
        return pa.nulls(len(columns["key"]), pa.binary()) if values is None else values
    encoded = encode_pairs_array(pairs)
    return encoded if values is None or values.null_count == len(values) else pc.coalesce(values, encoded)


def _kinds(columns: dict[str, Any]) -> list[int] | None:
    """Each row's operation by number; None where all are puts, the one case that is loaded in bulk."""
    found = columns["operation"].dictionary_encode()
    names = found.dictionary.to_pylist()
    if names == [OPERATION_NAMES[PUT]]:
        return None
    for name in names:
        if name not in OPERATION_NAMES:
            raise UpdateInvalid(reason=f"operation {name!r} is none of {', '.join(OPERATION_NAMES)}")
    numbers = np.array([OPERATION_NAMES.index(name) for name in names])
    return cast(list[int], numbers[np.asarray(found.indices)].tolist())


def _shards(columns: dict[str, Any], options: StoreOptions) -> npt.NDArray[np.int32]:
    rows = len(columns["key"])
    given = columns["shard"]
    if given is not None and given.null_count == 0:
        return np.asarray(given).astype(np.int32)
    if options.shards == 1:
        hashed = np.zeros(rows, np.int32)
    else:
        hashed = shards_of([columns["key"]], options.shards)
        ranges = pc.equal(columns["operation"], cast(Any, pa.scalar(OPERATION_NAMES[DELETE_RANGE])))
        hashed[cast(Any, ranges).to_numpy(zero_copy_only=False)] = ALL_SHARDS
    if given is None or given.null_count == rows:
        return hashed
    missing = np.asarray(given.is_null().to_numpy(zero_copy_only=False))
    return np.where(missing, hashed, np.asarray(given.fill_null(0))).astype(np.int32)


def _lengths(column: Any) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)


def _suspicious_rows(
    columns: dict[str, Any],
    kinds: list[int] | None,
    values: Any,
    lengths: npt.NDArray[np.int64],
    shards: npt.NDArray[np.int32],
    options: StoreOptions,
) -> npt.NDArray[np.int64]:
    """Rows that are looked at one by one; all others are puts that pass every check."""
    suspicious = np.zeros(len(lengths), np.bool_)
    if kinds is not None:
        suspicious |= np.array(kinds) != PUT
    suspicious |= lengths > options.max_update_bytes
    suspicious |= _lengths(columns["key"]) > options.max_key_bytes
    suspicious |= (shards < 0) | (shards >= options.shards)
    if values.null_count:
        suspicious |= np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    tables = columns["table"].dictionary_encode()
    names = tables.dictionary.to_pylist()
    bad = np.array([not TABLE_NAME.match(name) or name.startswith("__") for name in names])
    if bad.any():
        suspicious |= bad[np.asarray(tables.indices)]
    return np.flatnonzero(suspicious).astype(np.int64)
