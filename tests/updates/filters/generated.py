"""Batches and filters that hypothesis makes, of few names and values so that they meet, the awkward ones among them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tailrace.updates.filters import And, Between, Equals, Exists, Expression, In, Key, Matches, Not, Or
from tailrace.updates.filters.checks import bound_of, pattern_problem, value_of
from tailrace.updates.instants import instant_text, seconds_of
from tailrace.updates.schema import UPDATE_SCHEMA

NAMES = ["topic", "id", "table", "odd name", "größe", "and", 'a"b']
COLUMN_NAMES = ["shard", "era", "sequence", "index", "committed_at", "table", "operation", "key"]
WORDS = [
    "",
    "a",
    "aq",
    "tmp_x",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "1bcdefgh_abcdefgh",
    "2bcdefgh_abcdefgh",
    "größe",
    "it's",
]
NUMBERS = [
    "5", "05", "5.0", "5.", ".5", ".", "1e1", "1e", "-3", "+7", "--3", "1234567", "12345678", "123456.7", "1.2.3", "0",
    "00000000000000000000000012", "9007199254740992", "9007199254740993", "9007199254740993.5", "0.1",
    "0.1000000000000000055", "0.10000000000000001", "1e400", "1e-400", "-1e400", "1e1234567", "12345678901234567890",
    "NaN", "inf", " 5", "1_0", "0x10", "٣", "1" * 400, "1" * 401, "0e5", "-0",
]  # fmt: skip
PATTERNS = [
    "", "^", "$", "^$", "^tmp_", "a$", "^a$", "aq", "a.c", r"\.", "[0-9]+", "(?i)AB", "ö", "^.$", "^..$", "a|q",
    r"\.jpg$", r"\-", r"\$", "q{1}", "bcdefgh_", "^1bcdefgh_abcdefgh$", "5", r"Z$", "^[1-9]$", "\n", "x*",
    "^[A-M]", "^[a-c5]",
]  # fmt: skip
START = datetime(2026, 11, 18, 21, 40, 8, tzinfo=UTC)

values = st.one_of(
    st.none(),
    st.sampled_from([text.encode() for text in WORDS + NUMBERS]),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: str(number).encode()),
    st.binary(max_size=20),
)
instants = st.integers(0, 3).map(lambda microseconds: START + timedelta(microseconds=microseconds))


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.permutations(NAMES))
    pairs = [(name, draw(values)) for name in names[: draw(st.integers(0, 4))]]
    return {
        "shard": draw(st.sampled_from([0, 5, 64])),
        "era": draw(st.sampled_from([0, 1])),
        "sequence": draw(st.sampled_from([0, 5, 2**53 + 1, 2**63 - 1])),
        "index": draw(st.sampled_from([0, 5, 2**31 - 1])),
        "committed_at": draw(st.one_of(st.none(), instants)),
        "table": draw(st.sampled_from(["orders", "a", "5", "abcdefghi"])),
        "operation": draw(st.sampled_from(["put", "delete"])),
        "key": draw(values),
        "pairs": draw(st.sampled_from([pairs, pairs, pairs, None])),
        "before": None,
    }


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A few different rows repeated in some order, and often a slice of a larger batch."""
    different = draw(st.lists(rows(), min_size=1, max_size=8))
    order = draw(st.lists(st.integers(0, len(different) - 1), max_size=40))
    repeats = draw(st.sampled_from([1, 1, 4]))
    batch = pa.RecordBatch.from_pylist([different[at] for at in order * repeats], schema=UPDATE_SCHEMA)
    return batch.slice(draw(st.integers(0, 3)))


keys = st.one_of(
    st.sampled_from(NAMES).map(Key),
    st.sampled_from(COLUMN_NAMES).map(lambda name: Key(name, is_column=True)),
)


@st.composite
def words(draw: st.DrawFn, key: Key) -> str:
    if key == Key("committed_at", is_column=True):
        return instant_text(draw(instants))
    found = draw(st.sampled_from(["5", "0", "64", "9007199254740993", "orders", *WORDS, *NUMBERS]))
    kept, problem = value_of(key, found)
    return "5" if problem else kept


@st.composite
def bounds(draw: st.DrawFn, key: Key) -> Decimal:
    if key == Key("committed_at", is_column=True) and draw(st.booleans()):
        return seconds_of(draw(instants))
    number, problem = bound_of(Key("any"), draw(st.sampled_from(NUMBERS)))
    return Decimal(1) if problem else number


patterns = st.one_of(
    st.sampled_from(PATTERNS),
    st.text("aq5.^$\\*-/_[", max_size=5).filter(lambda pattern: pattern_problem(pattern) is None),
)


@st.composite
def basics(draw: st.DrawFn) -> Expression:
    key = draw(keys)
    match draw(st.sampled_from(["exists", "equals", "in", "in", "between", "matches"])):
        case "exists":
            return Exists(key)
        case "equals":
            return Equals(key, draw(words(key)))
        case "in":
            most = draw(st.sampled_from([2, 20]))
            return In(key, tuple(sorted(draw(st.sets(words(key), min_size=1, max_size=most)))))
        case "between":
            return Between(key, *sorted((draw(bounds(key)), draw(bounds(key)))))
    return Matches(key, draw(patterns))


expressions = st.recursive(
    basics(),
    lambda parts: st.one_of(
        parts.map(Not),
        st.lists(parts, max_size=3).map(lambda found: And(tuple(found))),
        st.lists(parts, max_size=3).map(lambda found: Or(tuple(found))),
    ),
    max_leaves=8,
)
