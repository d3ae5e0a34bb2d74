"""What users type: its forms, and the place that an error points at."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.updates.filters.generated import expressions

from tailrace.errors import FilterInvalid
from tailrace.updates.filters import And, Between, Equals, Exists, Expression, Filter, In, Key, Matches, Not, Or
from tailrace.updates.filters.parser import MAX_DEPTH
from tailrace.updates.filters.tokens import MAX_TEXT_CHARS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topic = 'aq'", Equals(Key("topic"), "aq")),
        ("topic = 5", Equals(Key("topic"), "5")),
        ("topic = '''tis'", Equals(Key("topic"), "'tis")),
        ("topic != 'aq'", Not(Equals(Key("topic"), "aq"))),
        ("topic <> 'aq'", Not(Equals(Key("topic"), "aq"))),
        ("exists mcd", Exists(Key("mcd"))),
        ("topic in ('b', 'a', 'b')", In(Key("topic"), ("a", "b"))),
        ("topic NOT IN ('a')", Not(In(Key("topic"), ("a",)))),
        ("price BETWEEN -1.5 AND 1e3", Between(Key("price"), Decimal("-1.5"), Decimal(1000))),
        ("price BETWEEN '1' AND '2'", Between(Key("price"), Decimal(1), Decimal(2))),
        ("name Matches '^tmp_'", Matches(Key("name"), "^tmp_")),
        ('"#.S" = 5', Equals(Key("#.S"), "5")),
        ('"say ""hi""" = 5', Equals(Key('say "hi"'), "5")),
        ("user-id.x = 5", Equals(Key("user-id.x"), "5")),
        ("table = 'orders'", Equals(Key("table", is_column=True), "orders")),
        ("pairs['table'] = 'orders'", Equals(Key("table"), "orders")),
        ("pairs = 'x'", Equals(Key("pairs"), "x")),
        ("shard = '05'", Equals(Key("shard", is_column=True), "5")),
        ("Shard = '05'", Equals(Key("Shard"), "05")),
        (
            "committed_at = '2026-11-18 22:40:08+01:00'",
            Equals(Key("committed_at", is_column=True), "2026-11-18T21:40:08.000000Z"),
        ),
        ("a = 1 OR b = 2 AND c = 3", Or((Equals(Key("a"), "1"), And((Equals(Key("b"), "2"), Equals(Key("c"), "3")))))),
        (
            "(a = 1 OR b = 2) AND c = 3",
            And((Or((Equals(Key("a"), "1"), Equals(Key("b"), "2"))), Equals(Key("c"), "3"))),
        ),
        ("NOT a = 1 AND b = 2", And((Not(Equals(Key("a"), "1")), Equals(Key("b"), "2")))),
        ("TRUE", And(())),
        ("False", Or(())),
    ],
)
def test_a_filter_means_what_it_says(text: str, expected: Expression) -> None:
    assert Filter.parse(text).expression == expected


@given(expressions)
def test_the_text_of_a_filter_parses_back_to_an_equal_one(expression: Expression) -> None:
    found = Filter.of(expression)
    again = Filter.parse(str(found))
    assert again == found
    assert hash(again) == hash(found)
    assert str(Filter.parse(str(again))) == str(again)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an empty filter"),
        ("  ", "an empty filter"),
    ],
)
def test_an_empty_filter_is_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(FilterInvalid, match=reason):
        Filter.parse(text)


# The caret's line stands below the filter's.
CARETS = [
    ("topic = ", "        ^", "found the end"),
    ("topic 'aq'", "      ^", "expected ="),
    ("topic = aq", "        ^", "single quotes"),
    ("topic = 'aq", "        ^", "no closing quote"),
    ('"topic = 1', "^", "no closing quote"),
    ("'topic' = 1", "^", "double quotes"),
    ("topic = 'a' AND", "               ^", "expected a key"),
    ("topic = 'a' 'b'", "            ^", "expected AND, OR or the end"),
    ("(topic = 'a'", "            ^", "expected )"),
    ("topic = 'a')", "           ^", "expected AND, OR or the end"),
    ("topic IN ()", "          ^", "expected a value"),
    ("topic IN ('a' 'b')", "              ^", "expected ',' or ')'"),
    ("topic BETWEEN 1", "               ^", "expected AND"),
    ("topic BETWEEN 'x' AND 2", "              ^", "decimal numbers"),
    ("topic BETWEEN 1 AND 1e9999999", "                    ^", "no number"),
    ("price < 3", "      ^", "BETWEEN"),
    ("a MATCHES 5", "          ^", "regular expression"),
    ("a = 1 OR a MATCHES '(x'", "                   ^", "missing )"),
    ("shard = 'x'", "        ^", "whole numbers"),
    ("shard IN (1, 1.5)", "             ^", "whole numbers"),
    ("committed_at = 'now'", "               ^", "2026-11-18T21:40:08Z"),
    ("and = 1", "^", "double quotes"),
    ("a = 5x", "    ^", "no number"),
    ("pairs[table] = 1", "      ^", "in quotes"),
    ("a NOT = 1", "      ^", "expected =, !=, IN"),
    ("größe = 'ö' x", "            ^", "expected AND"),
    ("名 = '名' x", "          ^", "expected AND"),  # wide characters take two columns
    ("a = 1 &&", "      ^", "write AND"),
    ("a = 1\nb", "      ^", "expected AND"),
]


@pytest.mark.parametrize(("text", "caret", "reason"), CARETS)
def test_an_error_points_at_the_place(text: str, caret: str, reason: str) -> None:
    with pytest.raises(FilterInvalid) as raised:
        Filter.parse(text)
    said, shown, pointer = str(raised.value).rsplit("\n", 2)
    assert reason in said
    assert shown == "  " + text.replace("\n", " ")
    assert pointer == "  " + caret


def test_an_error_in_a_long_filter_shows_the_part_around_the_place() -> None:
    text = " OR ".join(f"name = 'value {number}'" for number in range(200)) + " OR ?"
    with pytest.raises(FilterInvalid) as raised:
        Filter.parse(text)
    _, shown, pointer = str(raised.value).split("\n")
    assert len(shown) < 200
    assert shown[pointer.index("^")] == "?"
    assert raised.value.at == len(text) - 1


def test_the_normal_form_has_at_most_a_thousand_terms() -> None:
    assert len(Filter.parse(" OR ".join(f"a = {number}" for number in range(1000))).normal) == 1000
    with pytest.raises(FilterInvalid, match="1000 terms"):
        Filter.parse(" OR ".join(f"a = {number}" for number in range(1001)))


def test_too_many_terms_are_pointed_out_where_they_multiply() -> None:
    exploding = " AND ".join(f"(a{number} = 1 OR b{number} = 2)" for number in range(40))
    with pytest.raises(FilterInvalid, match="1000 terms") as raised:
        Filter.parse(f"EXISTS x OR ({exploding})")
    assert raised.value.at == len("EXISTS x OR ")


def test_a_negated_disjunction_does_not_multiply() -> None:
    text = " OR ".join(f"(a{number} = 1 AND b{number} = 2)" for number in range(9))
    assert len(Filter.parse(f"NOT ({text})").normal) == 512


def test_nesting_is_bounded() -> None:
    Filter.parse("(" * (MAX_DEPTH - 1) + "a = 1" + ")" * (MAX_DEPTH - 1))
    with pytest.raises(FilterInvalid, match="deep") as raised:
        Filter.parse("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH)
    assert raised.value.at == MAX_DEPTH


def test_the_text_is_bounded() -> None:
    with pytest.raises(FilterInvalid, match=f"at most {MAX_TEXT_CHARS}"):
        Filter.parse("a = '" + "x" * MAX_TEXT_CHARS + "'")


def test_the_canonical_text_is_bounded_too() -> None:
    longest = "1" * (MAX_TEXT_CHARS - len("a = ''"))
    assert len(str(Filter.parse(f"a = {longest}"))) == MAX_TEXT_CHARS
    with pytest.raises(FilterInvalid, match=f"canonical form.* {MAX_TEXT_CHARS + 1} characters") as raised:
        Filter.parse(f"a = {longest}1")
    assert raised.value.at == 0


def test_a_list_of_bare_numbers_is_refused_where_its_quoted_form_is_too_long() -> None:
    text = f"id IN ({','.join(map(str, range(100_000, 109_000)))})"
    assert len(text) < MAX_TEXT_CHARS
    with pytest.raises(FilterInvalid, match=r"canonical form.* 90006 characters"):
        Filter.parse(text)


@pytest.mark.parametrize(
    ("outer", "inner", "repeats"),
    [
        ("NOT {}", "a != 1", MAX_DEPTH - 1),  # NOT a = '1'
        ("NOT {}", "a NOT IN (1, 2)", MAX_DEPTH - 1),
        ("(EXISTS a OR EXISTS b AND {})", "EXISTS c", MAX_DEPTH // 2 + 1),  # (EXISTS a OR (EXISTS b AND (…)))
    ],
)
def test_nesting_is_bounded_in_canonical_form_too(outer: str, inner: str, repeats: int) -> None:
    assert Filter.parse(str(Filter.parse(nested(outer, inner, repeats // 2))))
    with pytest.raises(FilterInvalid, match=r"canonical form.* deep"):
        Filter.parse(nested(outer, inner, repeats))


def nested(outer: str, inner: str, repeats: int) -> str:
    for _ in range(repeats):
        inner = outer.format(inner)
    return inner


@given(
    st.sampled_from(["NOT {}", "({})", "(EXISTS a OR EXISTS b AND {})", "NOT (EXISTS a AND {} OR EXISTS b)"]),
    st.sampled_from(["EXISTS c", "c != 1", "c NOT IN (1, 2)", "EXISTS c AND EXISTS d", "NOT NOT (c = 1 OR d = 2)"]),
    st.one_of(st.integers(0, MAX_DEPTH), st.integers(MAX_DEPTH // 3 - 4, MAX_DEPTH // 3 + 4)),
)
def test_whatever_nesting_is_accepted_is_accepted_in_canonical_form(outer: str, inner: str, repeats: int) -> None:
    found = place_or_filter(nested(outer, inner, repeats))
    if isinstance(found, Filter):
        assert Filter.parse(str(found)) == found


@given(st.integers(MAX_TEXT_CHARS - 20, MAX_TEXT_CHARS), st.sampled_from(["1", "'x'", "1, 22, 1", "1, 'it''s'"]))
def test_whatever_length_is_accepted_is_accepted_in_canonical_form(length: int, values: str) -> None:
    start, end = "shard = 1 OR a IN ('", f"', {values})"
    found = place_or_filter(start + "x" * (length - len(start + end)) + end)
    if isinstance(found, Filter):
        assert Filter.parse(str(found)) == found


@pytest.mark.parametrize(
    "expression",
    [
        In(Key("a"), ()),
        Between(Key("a"), Decimal(1), Decimal("NaN")),
        Equals(Key("shard", is_column=True), "x"),
        Matches(Key("a"), "("),
        Or(tuple(Equals(Key("a"), str(number)) for number in range(1001))),
    ],
)
def test_what_code_puts_together_is_checked_as_if_it_was_typed(expression: Expression) -> None:
    with pytest.raises(FilterInvalid):
        Filter.of(expression)


def test_half_a_surrogate_pair_is_refused_at_its_place() -> None:
    with pytest.raises(FilterInvalid) as raised:
        Filter.parse("a = '\ud800'")
    assert raised.value.at == 5


def place_or_filter(text: str) -> int | Filter:
    try:
        return Filter.parse(text)
    except FilterInvalid as error:
        return int(error.at)


@given(st.text("abAND ORNOT()'\"=<5.,[]", max_size=30))
def test_any_text_parses_or_is_refused_at_a_place_within_it(text: str) -> None:
    found = place_or_filter(text)
    if isinstance(found, Filter):
        assert Filter.parse(str(found)) == found
    else:
        assert 0 <= found <= len(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1 AND b = 2", "b = 2 AND a = 1"),
        ("a = 1 OR a = 1", "a = 1"),
        ("NOT (a = 1 OR b = 2)", "NOT a = 1 AND NOT b = 2"),
        ("a IN ('1')", "a = 1"),
        ("a IN ('2', '1')", "a IN ('1', '2', '2')"),
        ("(a = 1 OR b = 2) AND c = 3", "a = 1 AND c = 3 OR b = 2 AND c = 3"),
        ("a BETWEEN 1 AND 2", "a BETWEEN 1.0 AND 20e-1"),
        ("shard = 05", "shard = 5"),
        ("a = 1 AND NOT a = 1", "FALSE"),
        ("a = 1 AND TRUE", "a = 1"),
        ("NOT NOT a = 1", "a = 1"),
    ],
)
def test_filters_with_one_normal_form_are_equal(one: str, other: str) -> None:
    assert Filter.parse(one) == Filter.parse(other)
    assert hash(Filter.parse(one)) == hash(Filter.parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1", "a = '01'"),
        ("a = 1", "NOT a = 1"),
        ("table = 'x'", "pairs['table'] = 'x'"),
        ("a = 1 OR b = 2", "a = 1 AND b = 2"),
    ],
)
def test_filters_with_different_normal_forms_differ(one: str, other: str) -> None:
    assert Filter.parse(one) != Filter.parse(other)
