"""Filters as JSON, for records and other languages."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from tests.updates.filters.generated import expressions

from tailrace.errors import FilterInvalid
from tailrace.updates.filters import Expression, Filter


@given(expressions)
def test_the_json_form_reads_back_to_an_equal_filter(expression: Expression) -> None:
    found = Filter.of(expression)
    assert Filter.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_json_form_is_the_documented_one() -> None:
    assert Filter.parse("topic = 'aq' OR NOT shard BETWEEN 1 AND 5.5").to_json() == {
        "or": [
            {"equals": {"key": {"pair": "topic"}, "value": "aq"}},
            {"not": {"between": {"key": {"column": "shard"}, "low": "1", "high": "5.5"}}},
        ]
    }


def test_everything_is_an_and_of_nothing() -> None:
    assert Filter.everything().to_json() == {"and": []}
    assert Filter.from_json({"and": []}) == Filter.everything()
    assert Filter.from_json({"and": []}).passes_everything


@pytest.mark.parametrize(
    ("value", "reason", "place"),
    [
        ({"nand": []}, "no kind of filter", "{"),
        ([], "expected a filter", "["),
        ({"and": {}}, "expected a list", "{}"),
        ({"exists": "topic"}, "expected a key", '"topic"'),
        ({"exists": {"column": "colour"}}, "no column 'colour'", '{"column"'),
        ({"exists": {"field": "colour"}}, "a pair or a column", '{"field"'),
        ({"equals": {"key": {"pair": "a"}}}, "expected an object", '{"key"'),
        ({"equals": {"key": {"pair": "a"}, "value": 5}}, "expected text", "5"),
        ({"equals": {"key": {"column": "shard"}, "value": "x"}}, "whole numbers", '"x"'),
        ({"in": {"key": {"pair": "a"}, "values": []}}, "one value at least", "[]"),
        ({"between": {"key": {"pair": "a"}, "low": "x", "high": "1"}}, "decimal numbers", '"x"'),
        ({"matches": {"key": {"pair": "a"}, "pattern": "("}}, "missing )", '"("'),
        ({"equals": {"key": {"pair": "a"}, "value": "\ud800"}}, "surrogate", '"\\ud800"'),
    ],
)
def test_an_error_points_into_the_json_text(value: object, reason: str, place: str) -> None:
    with pytest.raises(FilterInvalid, match=re.escape(reason)) as raised:
        Filter.from_json(value)
    assert json.dumps(value)[raised.value.at :].startswith(place)


def test_nesting_is_bounded() -> None:
    value: object = {"and": []}
    for _ in range(200):
        value = {"not": value}
    with pytest.raises(FilterInvalid, match="deep"):
        Filter.from_json(value)


def test_too_many_terms_are_refused() -> None:
    pair = {"pair": "a"}
    value = {"or": [{"equals": {"key": pair, "value": str(number)}} for number in range(1001)]}
    with pytest.raises(FilterInvalid, match="1000 terms"):
        Filter.from_json(value)
