"""The pairs codec: its layout byte by byte, round trips, and what counts as foreign."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import UpdateInvalid
from tailrace.updates.pairs import MAX_PAIRS, decode_pairs, encode_pairs, encode_pairs_array, is_pairs
from tailrace.updates.schema import PAIRS_TYPE

pairs = st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.binary(max_size=40)), max_size=6)
columns = st.lists(st.one_of(st.none(), pairs), max_size=20)

LAYOUT = (
    bytes.fromhex(
        "f5545001"  # magic and version
        "0300"  # three pairs
        "0100 02000000"  # a key of one byte, a value of two
        "0200 ffffffff"  # a key of two bytes, NULL
        "0000 00000000"  # the empty name, the empty value
    )
    + "aé".encode()
    + b"xy"
)


def test_the_layout_is_the_documented_one() -> None:
    assert encode_pairs({"a": "xy", "é": None, "": b""}) == LAYOUT


def test_the_documented_layout_decodes() -> None:
    assert decode_pairs(LAYOUT) == {"a": b"xy", "é": None, "": b""}


@given(pairs)
def test_pairs_survive_the_codec(found: dict[str, bytes | None]) -> None:
    encoded = encode_pairs(found)
    assert is_pairs(encoded)
    assert decode_pairs(encoded) == found
    assert list(decode_pairs(encoded)) == list(found)


@given(columns, st.integers(0, 3))
def test_a_column_is_encoded_as_its_rows_are(rows: list[dict[str, bytes | None] | None], skipped: int) -> None:
    made: list[list[tuple[str, bytes | None]] | None] = [None if row is None else list(row.items()) for row in rows]
    array = pa.array(made, PAIRS_TYPE)
    encoded = encode_pairs_array(array[skipped:])  # type: ignore[arg-type]
    encoded.validate(full=True)
    assert encoded.to_pylist() == [None if row is None else encode_pairs(row) for row in rows[skipped:]]


@given(pairs.map(encode_pairs), st.data())
def test_what_does_not_add_up_is_foreign(encoded: bytes, data: st.DataObject) -> None:
    shorter = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    longer = encoded + data.draw(st.binary(min_size=1, max_size=8))
    for foreign in (shorter, longer):
        assert not is_pairs(foreign)
        assert decode_pairs(foreign) == {"value": foreign}


@given(st.binary(max_size=60))
def test_any_bytes_decode(data: bytes) -> None:
    found = decode_pairs(data)
    assert is_pairs(data) or found == {"value": data}


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"hello",
        b"\xf5TP\x02\x00\x00",  # a version of tomorrow
        b"\xf5TP\x01",
        b"\xf5TP\x01\x01\x00\x01\x00\x00\x00\x00\x00\xff",  # a name that is no UTF-8
        b"\xf5TP\x01\xff\xff",
    ],
)
def test_other_programs_values_are_one_pair(foreign: bytes) -> None:
    assert decode_pairs(foreign) == {"value": foreign}


def test_too_many_pairs_are_refused() -> None:
    many: dict[str, bytes | str | None] = {str(number): b"" for number in range(MAX_PAIRS + 1)}
    with pytest.raises(UpdateInvalid, match="65536 pairs"):
        encode_pairs(many)
    with pytest.raises(UpdateInvalid, match="row 1 has more than 65535 pairs"):
        encode_pairs_array(pa.array([[], list(many.items())], PAIRS_TYPE))


def test_a_name_that_is_too_long_is_refused() -> None:
    name = "n" * 65_536
    with pytest.raises(UpdateInvalid, match="65536 bytes"):
        encode_pairs({name: b""})
    with pytest.raises(UpdateInvalid, match="row 0 has a pair name"):
        encode_pairs_array(pa.array([[(name, b"")]], PAIRS_TYPE))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"\ud800": b""}, r"the name of pair '\\ud800' is no text: surrogates not allowed"),
        ({5: b""}, "the name of pair 5 is int; a name is text"),
        ({"n": "\udcff"}, "pair 'n' holds no text: surrogates not allowed; give it as bytes"),
        ({"n": 5}, "pair 'n' holds int; a value is bytes, text or None"),
        ({"n": memoryview(b"xxxx").cast("i")}, "pair 'n' holds memoryview"),
    ],
)
def test_what_is_no_pair_is_refused(bad: Any, message: str) -> None:
    with pytest.raises(UpdateInvalid, match=message):
        encode_pairs(bad)
