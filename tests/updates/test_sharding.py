"""Shards against the xxhash library, and the vectors that other languages test with."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from tests.updates.make_shard_vectors import VECTORS, laid_out, vectors

from tailrace.updates.buffers import BytesColumn
from tailrace.updates.sharding import shard_of, shards_of, shards_of_buffers, xxh64

values = st.one_of(st.none(), st.binary(max_size=100))


@given(st.binary(max_size=300), st.integers(0, 8))
def test_the_hash_is_xxh64_with_seed_0(data: bytes, before: int) -> None:
    held = np.frombuffer(b"?" * before + data + b"??", np.uint8)
    assert int(xxh64(held, before, before + len(data))) == xxhash.xxh64_intdigest(data)


@given(st.lists(values, min_size=1, max_size=4), st.integers(1, 2**31 - 1))
def test_a_row_is_hashed_with_its_lengths(row: list[bytes | None], shards: int) -> None:
    assert shard_of(row, shards) == xxhash.xxh64_intdigest(laid_out(row)) % shards


@given(
    st.lists(st.tuples(values, values), max_size=30),
    st.integers(0, 2),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_columns_are_sharded_as_their_rows_are(
    rows: list[tuple[bytes | None, bytes | None]], skipped: int, kind: Any
) -> None:
    columns = [pa.array([row[at] for row in rows], kind)[skipped:] for at in range(2)]
    assert shards_of(columns, 1000).tolist() == [shard_of(row, 1000) for row in rows[skipped:]]


def test_text_is_sharded_as_its_utf8() -> None:
    assert shard_of(["größe"], 1000) == shard_of(["größe".encode()], 1000)
    assert shards_of([pa.array(["größe"])], 1000).tolist() == [shard_of(["größe"], 1000)]


def test_raw_buffers_are_sharded_without_arrow() -> None:
    column = BytesColumn(np.array([2, 4, 4, 7], np.int32), np.frombuffer(b"??abcde??", np.uint8), None)
    assert shards_of_buffers([column], 64).tolist() == [shard_of([value], 64) for value in (b"ab", b"", b"cde")]


def test_the_test_vectors_hold() -> None:
    found = json.loads(VECTORS.read_text())
    assert found == vectors()
    for vector in found:
        row = [None if value is None else bytes.fromhex(value) for value in vector["values_hex"]]
        assert shard_of(row, 64) == vector["shard_of_64"]
        assert shard_of(row, 1000) == vector["shard_of_1000"]


@pytest.mark.parametrize(("columns", "shards"), [([], 64), ([pa.array([b"a"])], 0)])
def test_no_columns_and_no_shards_are_refused(columns: list[Any], shards: int) -> None:
    with pytest.raises(ValueError):
        shards_of(columns, shards)
