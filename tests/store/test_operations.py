"""What is refused, and with which words; record batches and single operations mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConfigInvalid, TailraceError, UpdateInvalid, UpdateTooLarge
from tailrace.store.operations import (
    Prepared,
    conform,
    count_writes,
    delete,
    delete_range,
    prepare,
    prepare_batch,
    put,
)
from tailrace.store.options import StoreOptions
from tailrace.updates.pairs import decode_pairs, encode_pairs
from tailrace.wire.store_messages import DELETE, OPERATION_NAMES, OPERATIONS_SCHEMA, PUT, Operation

OPTIONS = StoreOptions(
    shards=4, max_key_bytes=10, max_update_bytes=100, max_write_bytes=250, max_write_operations=5, max_queued_bytes=1000
)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (put("", b"k", b"v"), "'' cannot be a table's name"),
        (put("a b", b"k", b"v"), "'a b' cannot be a table's name"),
        (put("__tailrace", b"k", b"v"), "'__tailrace' cannot be a table's name"),
        (put("x" * 129, b"k", b"v"), "cannot be a table's name"),
        (put("t", b"k" * 11, b"v"), "a key of 11 bytes in table 't'; store.max_key_bytes is 10"),
        (put("t", b"k", b"v", shard=4), "shard 4 is not one of the store's 4"),
        (put("t", b"k", b"v", shard=-1), "shard -1 is not one of the store's 4"),
        (delete_range("t", b"b", b"b"), "a range in table 't' ends at b'b', not after its begin b'b'"),
        (delete_range("t", b"b", b"a"), "ends at b'a'"),
        (delete_range("t", b"a", b"k" * 11), "a key of 11 bytes"),
        (Operation(PUT, "t", b"k"), "a put in table 't' has neither pairs nor a value"),
        (Operation(DELETE, "t", b"k", b"v"), "a delete in table 't' has a value"),
        (Operation(9, "t", b"k", b"v"), "there is no operation number 9"),
        (Operation(PUT, "t", cast(bytes, "k"), b"v"), "a key in table 't' is str; a key is bytes"),
    ],
)
def test_a_bad_operation_is_refused_by_name(operation: Operation, message: str) -> None:
    with pytest.raises(UpdateInvalid) as refused:
        prepare([put("t", b"good", b"v"), operation], OPTIONS)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: put(bad(5), b"k", b"v"), "5 cannot be a table's name: a name has 1 to 128 letters"),
        (lambda: put("\udcff", b"k", b"v"), r"'\udcff' cannot be a table's name"),
        (lambda: delete("é", b"k"), "'é' cannot be a table's name"),
        (lambda: put("t", bad("k"), b"v"), "a key in table 't' is str; a key is bytes"),
        (lambda: delete("t", bad(None)), "a key in table 't' is NoneType; a key is bytes"),
        (lambda: put("t", b"k", np.bytes_(b"v")), "a value in table 't' is bytes_; it is pairs or bytes"),
        (lambda: delete_range("t", b"a", bad("b")), "a value in table 't' is str"),
        (lambda: put("t", b"k", b"v", shard=bad("1")), "a shard in table 't' is '1'"),
        (lambda: put("t", b"k", b"v", shard=True), "a shard in table 't' is True"),
        (lambda: delete("t", b"k", shard=1 << 70), "it is an int below the store's shards"),
    ],
)
def test_what_no_message_can_carry_is_not_made(make: Callable[[], Operation], message: str) -> None:
    with pytest.raises(UpdateInvalid) as refused:
        make()
    assert message in str(refused.value)


def bad(value: Any) -> Any:
    return value


def test_a_large_update_names_table_size_limit_and_setting() -> None:
    with pytest.raises(UpdateTooLarge) as refused:
        prepare([put("orders", b"k", b"v" * 100)], OPTIONS)
    assert str(refused.value) == (
        "an update of 101 bytes in table 'orders' is over the limit of 100 bytes (store.max_update_bytes)"
    )


def test_a_write_is_limited_in_operations_and_bytes() -> None:
    with pytest.raises(UpdateInvalid, match=r"6 operations; store.max_write_operations is 5"):
        prepare([delete("t", b"k")] * 6, OPTIONS)
    with pytest.raises(UpdateInvalid, match=r"300 bytes; store.max_write_bytes is 250"):
        prepare([put("t", b"k", b"v" * 99)] * 3, OPTIONS)
    with pytest.raises(UpdateInvalid, match="holds no operation"):
        prepare([], OPTIONS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"durability": "maybe"}, "store.durability: 'maybe' is none of fsync, grouped, none"),
        ({"shards": 0}, "store.shards: 0 is not more than 0"),
        ({"wal_keep_s": -1}, "store.wal_keep_s: -1 is not more than 0"),
        ({"max_update_bytes": 1 << 31}, "store.max_update_bytes: 2147483648 is more than 1073741824"),
        ({"max_update_bytes": 1000, "max_write_bytes": 999}, "store.max_update_bytes: 1000 is more than"),
        ({"max_queued_bytes": 100}, "store.max_write_bytes: 67108864 is more than max_queued_bytes, 100"),
    ],
)
def test_options_that_make_no_sense_name_their_path(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        StoreOptions(**given)
    assert message in str(refused.value)


# ---- record batches ------------------------------------------------------------------------------------------------

texts = st.sampled_from(["t", "users", "a.b", "", "__x", "no good"])
shards = st.sampled_from([None, 0, 3, 4, -1])
values = st.one_of(st.none(), st.binary(max_size=12), st.just(b"v" * 99))
operations = st.builds(
    Operation,
    st.integers(0, 2),
    texts,
    st.one_of(st.binary(max_size=4), st.just(b"k" * 11)),
    values,
    shards,
)
plain_puts = st.builds(Operation, st.just(PUT), st.just("t"), st.binary(max_size=4), st.binary(max_size=9), shards)


def batch_of(writes: list[list[Operation]]) -> pa.RecordBatch:
    rows = [
        {
            "write": number,
            "table": operation.table,
            "operation": OPERATION_NAMES[operation.operation],
            "key": operation.key,
            "value": operation.value,
            "shard": operation.shard,
        }
        for number, write in enumerate(writes)
        for operation in write
    ]
    return pa.RecordBatch.from_pylist(rows, schema=OPERATIONS_SCHEMA)


def shown(write: Prepared | TailraceError) -> object:
    if isinstance(write, TailraceError):
        return type(write), str(write)
    kinds = write.kinds if write.kinds is not None else [PUT] * len(write)
    return kinds, write.tables, write.keys, write.values, write.shards.tolist(), write.size_bytes


def one_by_one(operations: list[Operation]) -> Prepared | TailraceError:
    try:
        return prepare(operations, OPTIONS)
    except TailraceError as error:
        return error


@given(st.lists(st.lists(st.one_of(operations, plain_puts), min_size=1, max_size=6), max_size=5))
def test_a_record_batch_means_what_its_operations_mean(writes: list[list[Operation]]) -> None:
    found = list(prepare_batch(batch_of(writes), OPTIONS))

    assert [entry.number for entry in found] == list(range(len(writes)))
    for entry, write in zip(found, writes, strict=True):
        expected = one_by_one(write)
        if isinstance(expected, TailraceError):
            assert isinstance(entry.write, type(expected))
        else:
            assert shown(entry.write) == shown(expected)


def test_pairs_of_a_record_batch_are_encoded_where_there_is_no_value() -> None:
    rows = [
        {"write": 0, "table": "t", "operation": "put", "key": b"a", "pairs": [("x", b"1"), ("y", None)]},
        {"write": 1, "table": "t", "operation": "put", "key": b"b", "value": b"raw"},
        {"write": 1, "table": "t", "operation": "delete", "key": b"c"},
    ]
    found = list(prepare_batch(pa.RecordBatch.from_pylist(rows, schema=OPERATIONS_SCHEMA), StoreOptions()))

    first, second = (entry.write for entry in found)
    assert isinstance(first, Prepared)
    assert isinstance(second, Prepared)
    assert first.values == [encode_pairs({"x": "1", "y": None})]
    assert decode_pairs(first.values[0] or b"") == {"x": b"1", "y": None}
    assert second.values == [b"raw", None]


def test_a_record_batch_that_is_no_writes_is_refused() -> None:
    good = batch_of([[put("t", b"k", b"v")], [put("t", b"k", b"v")]])

    def refusal(batch: pa.RecordBatch) -> str:
        with pytest.raises(UpdateInvalid) as refused:
            list(prepare_batch(batch, OPTIONS))
        return str(refused.value)

    assert "the column 'key' is missing" in refusal(good.drop_columns(["key"]))
    assert "the column 'shard' is string, not int32" in refusal(good.set_column(6, "shard", pa.array(["1", "2"])))
    assert "the column 'table' holds nulls" in refusal(good.set_column(1, "table", pa.array(["t", None])))
    assert "the column 'write' falls" in refusal(good.set_column(0, "write", pa.array([1, 0])))
    assert "operation 'upsert' is none of put, delete, delete_range" in refusal(
        good.set_column(2, "operation", pa.array(["put", "upsert"]))
    )


def test_a_client_counts_the_writes_of_a_batch() -> None:
    batch = batch_of([[delete("t", b"a"), delete("t", b"b")], [delete("t", b"c")]])
    assert count_writes(batch) == 2
    assert count_writes(batch.slice(0, 0)) == 0
    with pytest.raises(UpdateInvalid, match="does not count 0, 1"):
        count_writes(batch.slice(2))
    with pytest.raises(UpdateInvalid, match="does not count 0, 1"):
        count_writes(batch.set_column(0, "write", pa.array([0, 0, 2])))


def test_missing_columns_are_filled_in() -> None:
    batch = batch_of([[put("t", b"a", b"v")]])
    narrow = batch.select(["key", "write", "value", "operation", "table"])

    conformed = conform(narrow)

    assert conformed.schema.equals(OPERATIONS_SCHEMA)
    assert conformed.equals(batch)
