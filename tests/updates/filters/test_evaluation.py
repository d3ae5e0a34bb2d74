"""The vectorised evaluator against the plain one, and what filters over one batch share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.updates.filters.generated import basics, batches, expressions

from tailrace.testing.filter_model import rows_that_pass
from tailrace.updates.filters import Expression, Filter, FilterSet, Lookups
from tailrace.updates.filters.normal import disjunctive_normal, negation_normal
from tailrace.updates.filters.syntax import And, Not, Or
from tailrace.updates.schema import EMPTY_UPDATES, UPDATE_SCHEMA


@given(basics(), batches())
def test_a_basic_filter_passes_the_rows_that_the_model_passes(expression: Expression, batch: pa.RecordBatch) -> None:
    assert Filter.of(expression).mask(batch).to_pylist() == rows_that_pass(expression, batch)


@given(expressions, expressions, batches())
def test_filters_over_shared_lookups_pass_the_rows_that_the_model_passes(
    one: Expression, other: Expression, batch: pa.RecordBatch
) -> None:
    lookups = Lookups(batch)
    for expression in (one, other, one):
        mask = Filter.of(expression).mask(batch, lookups)
        assert mask.null_count == 0
        assert mask.to_pylist() == rows_that_pass(expression, batch)


@given(st.lists(expressions, max_size=5), expressions, batches())
def test_filters_that_run_together_pass_the_rows_that_the_model_passes(
    together: list[Expression], other: Expression, batch: pa.RecordBatch
) -> None:
    filters = [Filter.of(expression) for expression in together]
    lookups = FilterSet(filters).lookups(batch)
    for found in [*filters, Filter.of(other), *filters]:
        assert found.mask(batch, lookups).to_pylist() == rows_that_pass(found.expression, batch)


@given(expressions, batches())
def test_both_normal_forms_pass_the_same_rows(expression: Expression, batch: pa.RecordBatch) -> None:
    expected = rows_that_pass(expression, batch)
    assert rows_that_pass(negation_normal(expression), batch) == expected
    terms = Or(tuple(And(tuple(term)) for term in disjunctive_normal(expression)))
    assert rows_that_pass(terms, batch) == expected


@given(expressions)
def test_in_negation_normal_form_only_basic_filters_are_negated(expression: Expression) -> None:
    def check(part: Expression) -> None:
        if isinstance(part, And | Or):
            assert all(type(inner) is not type(part) for inner in part.parts)
            for inner in part.parts:
                check(inner)
        elif isinstance(part, Not):
            assert not isinstance(part.part, And | Or | Not)

    check(negation_normal(expression))


def updates(*found: dict[str, Any]) -> pa.RecordBatch:
    blank = dict.fromkeys(UPDATE_SCHEMA.names)
    fixed = {"shard": 0, "era": 0, "sequence": 1, "index": 0, "table": "t", "operation": "put", "key": b"k"}
    return pa.RecordBatch.from_pylist([{**blank, **fixed, **row} for row in found], schema=UPDATE_SCHEMA)


def with_pairs(*found: dict[str, bytes | None] | None) -> pa.RecordBatch:
    return updates(*({"pairs": None if pairs is None else list(pairs.items())} for pairs in found))


def test_a_pair_named_like_the_signature_of_no_pairs_exists_only_where_it_is() -> None:
    name = b"\0\0\0\x08\0\0\x01\0".decode()
    batch = with_pairs({name: b"x"}, None, {name: b"x"}, {"other": b"x"})
    assert Filter.parse(f'EXISTS "{name}"').mask(batch).to_pylist() == [True, False, True, False]


VALUES = with_pairs({"a": b"x"}, {"a": None}, {"b": b"x"}, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EXISTS a", [True, True, False, False]),
        ("NOT EXISTS a", [False, False, True, True]),
        ("a = 'x'", [True, False, False, False]),
        ("NOT a = 'x'", [False, True, True, True]),
        ("a != 'x'", [False, True, True, True]),
        ("a IN ('x', 'y')", [True, False, False, False]),
        ("a NOT IN ('x', 'y')", [False, True, True, True]),
        ("a MATCHES ''", [True, False, False, False]),
        ("a NOT MATCHES 'y'", [True, True, True, True]),
        ("a BETWEEN 0 AND 9", [False, False, False, False]),
        ("a NOT BETWEEN 0 AND 9", [True, True, True, True]),
        ("TRUE", [True, True, True, True]),
        ("FALSE", [False, False, False, False]),
    ],
)
def test_null_and_absent_keys_pass_no_basic_filter_but_existence(text: str, expected: list[bool]) -> None:
    assert Filter.parse(text).mask(VALUES).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("sequence = 9007199254740993", True),
        ("sequence = 9007199254740992", False),
        ("sequence BETWEEN 9007199254740992.5 AND 9007199254740993.5", True),
        ("sequence BETWEEN 9007199254740993.5 AND 1e30", False),
        ("shard = '007'", True),
        ("shard IN (6, 8)", False),
        ("shard MATCHES '^7$'", True),
        ("table = 'orders' AND pairs['table'] = 'inner'", True),
        ("table = 'inner'", False),
        ("key = 'größe'", True),
        ("committed_at = '2026-11-18T22:40:08+01:00'", True),
        ("committed_at BETWEEN '2026-11-18' AND '2026-11-19'", True),
        ("committed_at BETWEEN '2026-11-18T21:40:08.000001' AND '2026-11-19'", False),
        ("committed_at MATCHES '^2026-11-18T21:40:08.000000Z$'", True),
        ("EXISTS committed_at", True),
    ],
)
def test_columns_answer_as_the_text_that_they_read_as(text: str, passes: bool) -> None:
    from datetime import UTC, datetime

    batch = updates(
        {
            "sequence": 2**53 + 1,
            "shard": 7,
            "table": "orders",
            "key": "größe".encode(),
            "committed_at": datetime(2026, 11, 18, 21, 40, 8, tzinfo=UTC),
            "pairs": [("table", b"inner")],
        }
    )
    assert Filter.parse(text).mask(batch).to_pylist() == [passes]


@pytest.mark.parametrize(
    ("value", "low", "high", "passes"),
    [
        (b"9007199254740993", "9007199254740993", "9007199254740993", True),
        (b"9007199254740992", "9007199254740993", "9007199254740994", False),
        (b"0.1", "0.1", "0.1", True),
        (b"0.1000000000000000055", "0", "0.1", False),
        (b"1e400", "1e399", "1e401", True),
        (b"1e402", "1e399", "1e401", False),
        (b"1e-400", "0", "0", False),
        (b"-0", "0", "0", True),
        (b"five", "-1e9", "1e9", False),
    ],
)
def test_intervals_are_exact(value: bytes, low: str, high: str, passes: bool) -> None:
    batch = with_pairs({"a": value})
    assert Filter.parse(f"a BETWEEN {low} AND {high}").mask(batch).to_pylist() == [passes]


def test_more_shapes_than_are_numbered_are_searched_row_by_row() -> None:
    batch = with_pairs(*({f"only{row}": b"1", "a": b"%d" % row} for row in range(300)))
    assert Filter.parse("a = 77 OR EXISTS only99").mask(batch).to_pylist() == [row in (77, 99) for row in range(300)]


def test_a_regular_expression_over_many_different_values_finds_the_rows() -> None:
    batch = with_pairs(*({"a": b"name%d" % row, "b": b"%d" % (row % 10)} for row in range(500)))
    lookups = Lookups(batch)
    narrowed = Filter.parse("b = 3 AND a MATCHES '[13]3$'").mask(batch, lookups).to_pylist()
    assert narrowed == [str(row)[-2:] in ("13", "33") for row in range(500)]
    whole = Filter.parse("a MATCHES '[13]3$'").mask(batch, lookups).to_pylist()
    assert whole == narrowed


@pytest.mark.parametrize("size", [127, 128, 129, 136, 1000])
def test_long_values_that_differ_anywhere_are_told_apart(size: int) -> None:
    different = ["x" * at + "y" + "x" * (size - at - 1) for at in range(size)]
    batch = with_pairs(*({"a": text.encode()} for text in different))
    for wanted in (0, 63, 64, size // 2, size - 65, size - 64, size - 1):
        expected = [row == wanted for row in range(size)]
        assert Filter.parse(f"a = '{different[wanted]}'").mask(batch).to_pylist() == expected
    listed = ", ".join(f"'{text}'" for text in different[:40])
    assert Filter.parse(f"a IN ({listed})").mask(batch).to_pylist() == [row < 40 for row in range(size)]


def test_select_gives_the_rows_that_pass() -> None:
    batch = with_pairs({"a": b"1"}, {"a": b"2"}, {"a": b"1"})
    assert Filter.parse("a = 1").select(batch).column("pairs").to_pylist() == [[("a", b"1")], [("a", b"1")]]


@pytest.mark.parametrize("text", ["TRUE", "EXISTS a", "a BETWEEN 0 AND 5"])
def test_select_gives_the_batch_itself_where_all_rows_pass(text: str) -> None:
    batch = with_pairs({"a": b"1"}, {"a": b"2"})
    assert Filter.parse(text).select(batch) is batch


@pytest.mark.parametrize("text", ["TRUE", "a = 1", "NOT a MATCHES '^[a]$' OR shard = 1 OR committed_at MATCHES 'Z.'"])
def test_an_empty_batch_has_an_empty_mask(text: str) -> None:
    mask = Filter.parse(text).mask(EMPTY_UPDATES)
    assert mask.type == pa.bool_()
    assert mask.to_pylist() == []


def test_an_answer_is_not_changed_by_the_filters_that_share_it() -> None:
    batch = with_pairs({"a": b"1"}, {"a": b"2"})
    lookups = Lookups(batch)
    alone = Filter.parse("a = 1")
    for text in ("a = 1 AND a = 2", "a = 1 OR a = 2", "NOT a = 1", "a = 1 OR a MATCHES '.'"):
        Filter.parse(text).mask(batch, lookups)
        assert alone.mask(batch, lookups).to_pylist() == [True, False]
