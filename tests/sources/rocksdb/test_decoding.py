"""A decoder of one's own turns foreign values into pairs; values in the codec do not pass through it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tailrace.updates.pairs import encode_pairs
from tailrace.updates.schema import PAIRS_TYPE
from tests.sources.rocksdb.reading import read_through, rows_of, source_of
from tests.sources.rocksdb.written import log_of, make_folder, put, write_batch


class Fields:
    """`a=1;b=2` and a record of what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def decode(self, tables: pa.Array[Any], keys: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
        self.asked.extend(zip(tables.to_pylist(), keys.to_pylist(), values.to_pylist(), strict=True))
        split = [[field.split(b"=") for field in value.split(b";")] for value in values.to_pylist()]
        return pa.array([[(name.decode(), field) for name, field in row] for row in split], PAIRS_TYPE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    delete = b"\x00" + b"\x01d"
    merge = b"\x02" + b"\x01m" + b"\x03c=3"
    batch = write_batch(1, put(b"f", b"a=1;b=2"), put(b"c", encode_pairs({"x": "y"})), delete, merge)
    return make_folder(tmp_path / "db", {4: log_of([batch])})


def test_foreign_values_become_the_pairs_that_the_decoder_finds(folder: Path) -> None:
    decoder = Fields()
    (batch,) = read_through(source_of(folder, decoder=decoder), 4)
    assert [(row.operation, row.pairs) for row in rows_of(batch.updates)] == [
        ("put", (("a", b"1"), ("b", b"2"))),
        ("put", (("x", b"y"),)),
        ("delete", None),
        ("merge", (("c", b"3"),)),
    ]
    assert decoder.asked == [("default", b"f", b"a=1;b=2"), ("default", b"m", b"c=3")]


def test_a_decoder_that_fails_stops_the_source(folder: Path) -> None:
    class Short:
        def decode(self, tables: pa.Array[Any], keys: pa.Array[Any], values: pa.Array[Any]) -> pa.Array[Any]:
            return pa.array([], PAIRS_TYPE)

    with pytest.raises(ValueError, match="asked for 2"):
        read_through(source_of(folder, decoder=Short()), 4)
