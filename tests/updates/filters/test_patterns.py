"""Expressions that are answered without RE2 find exactly what RE2 finds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.updates.filters.checks import pattern_problem
from tailrace.updates.filters.patterns import Pattern
from tailrace.updates.filters.values import Texts

SIMPLE = [
    "",
    "^",
    "$",
    "^$",
    "^tmp_",
    r"\.jpg$",
    "^aq$",
    "aq",
    r"a\-b",
    "^[A-M]",
    "^[a-c5]",
    "^[ab]",
    "ö",
    "\n",
    r"^\^",
    "^[a-c]x",
    "-1[0-9]$",
    r"^\.[A-Za-z]ö[59]$",
]
ELSE = [
    "a.",
    "a|b",
    "a*",
    "(a)",
    "a{2}",
    r"\d",
    "(?i)a",
    "^[^a]",
    "^^",
    "$a",
    "^[a-]",
    "[a-c]x",
    "[a]",
    "^[ö]",
    "^[a]" + "x" * 80,
    "a^",
    r"\Qa\E",
]


@pytest.mark.parametrize("pattern", SIMPLE)
def test_simple_expressions_take_no_re2(pattern: str) -> None:
    assert not Pattern(pattern).is_costly


@pytest.mark.parametrize("pattern", ELSE)
def test_everything_else_takes_re2(pattern: str) -> None:
    assert Pattern(pattern).is_costly


patterns = st.one_of(
    st.sampled_from(SIMPLE),
    st.text("aqö.^$\\-/_5\n", max_size=5),
    st.text("abcAM5-", min_size=1, max_size=4).map(lambda inner: f"^[{inner}]"),
    st.from_regex(r"\A\^?(\[[ab5]-?[cAM]\]|[aö\n5])*\[a5?\](\[[ab5]-?[cM]\]|[a5])?\$?\Z"),
).filter(lambda pattern: pattern_problem(pattern) is None)
texts = st.one_of(st.sampled_from([b"tmp_x", b"x.jpg", b"aq", b"aaq", b"a-b", b"\xff", b"a\n"]), st.binary(max_size=6))


@given(patterns, st.lists(st.one_of(st.none(), texts, st.text("aqöAM5^-\n", max_size=6).map(str.encode)), max_size=20))
def test_both_ways_find_the_same(pattern: str, found: list[bytes | None]) -> None:
    held = pa.array(found, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(found), held.buffers())
    expected = [bool(answer) for answer in pc.match_substring_regex(text, pattern).to_pylist()]
    assert Texts.of(held).matches(Pattern(pattern)).tolist() == expected
