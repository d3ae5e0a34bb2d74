"""Finding a pair in each row, whatever shapes the rows have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace.updates.pair_index import MAX_SHAPES, PairIndex
from tailrace.updates.schema import PAIRS_TYPE

NAMES = ["a", "b", "ab", "ba", "", "name_of_8", "name_of_9", "a much longer name", "größe"]
some_names = st.permutations(NAMES).flatmap(lambda names: st.integers(0, len(names)).map(lambda count: names[:count]))


def cancelling(names: list[str]) -> list[str]:
    """The names behind one that makes the shape's signature 0, that of a row without pairs."""
    pairs, length = 1 + len(names), 8 + sum(len(name.encode()) for name in names)
    return [(pairs << 48 ^ length << 24).to_bytes(8, "little").decode(), *names]


rows = st.one_of(st.none(), some_names, some_names.map(cancelling))


def index_of(found: list[list[str] | None], skipped: int = 0) -> PairIndex:
    made = [None if names is None else [(name, name.encode()) for name in names] for names in found]
    array: Any = pa.array(made, PAIRS_TYPE)
    return PairIndex(array[skipped:])


@given(st.lists(rows, max_size=30), st.integers(0, 3))
def test_every_name_is_found_where_it_is(found: list[list[str] | None], skipped: int) -> None:
    index = index_of(found, skipped)
    for name in {*NAMES, "absent", *(name for names in found for name in names or [])}:
        expected = [name.encode() if names and name in names else None for names in found[skipped:]]
        assert index.gather(index.places(name)).to_pylist() == expected


def test_more_shapes_than_are_numbered_are_searched() -> None:
    found: list[list[str] | None] = [[f"own{row}", "shared"] for row in range(MAX_SHAPES + 5)]
    index = index_of(found)
    assert index.places("shared").tolist() == [2 * row + 1 for row in range(MAX_SHAPES + 5)]
    assert index.places("own7").tolist() == [14 if row == 7 else -1 for row in range(MAX_SHAPES + 5)]


def test_names_that_run_together_alike_are_different_shapes() -> None:
    index = index_of([["ab", "cdefghijkl"], ["abc", "defghijkl"]])
    assert index.places("ab").tolist() == [0, -1]
    assert index.places("abc").tolist() == [-1, 2]


def test_a_name_that_cancels_the_signature_is_not_found_in_rows_without_pairs() -> None:
    name = b"\0\0\0\x08\0\0\x01\0".decode()
    assert cancelling([]) == [name]
    index = index_of([[name], [], [name], ["other"], None])
    assert index.places(name).tolist() == [0, -1, 1, -1, -1]
    assert index_of([[], [name], ["other"]]).places(name).tolist() == [-1, 0, -1]
