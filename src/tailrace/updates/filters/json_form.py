"""Filters as JSON values, for records and other languages.

    {"or": [...]}  {"and": [...]}  {"not": F}  {"exists": K}  {"equals": {"key": K, "value": "v"}}
    {"in": {"key": K, "values": ["v", "w"]}}  {"between": {"key": K, "low": "1", "high": "5.5"}}
    {"matches": {"key": K, "pattern": "^tmp_"}}      where K is {"pair": "name"} or {"column": "name"}

Everything is {"and": []}. Bounds are decimal text, as JSON numbers lose digits.
"""

from __future__ import annotations

import json
from typing import Any

from tailrace.errors import FilterInvalid
from tailrace.updates.filters import checks
from tailrace.updates.filters.parser import MAX_DEPTH
from tailrace.updates.filters.syntax import (
    COLUMNS,
    And,
    Between,
    Equals,
    Exists,
    Expression,
    In,
    Key,
    Matches,
    Not,
    Or,
)
from tailrace.updates.filters.tokens import invalid


def to_json(expression: Expression) -> dict[str, Any]:
    match expression:
        case And(parts):
            return {"and": [to_json(part) for part in parts]}
        case Or(parts):
            return {"or": [to_json(part) for part in parts]}
        case Not(part):
            return {"not": to_json(part)}
        case Exists(key):
            return {"exists": _key_to_json(key)}
        case Equals(key, value):
            return {"equals": {"key": _key_to_json(key), "value": value}}
        case In(key, values):
            return {"in": {"key": _key_to_json(key), "values": list(values)}}
        case Between(key, low, high):
            return {"between": {"key": _key_to_json(key), "low": str(low), "high": str(high)}}
        case Matches(key, pattern):
            return {"matches": {"key": _key_to_json(key), "pattern": pattern}}


def _key_to_json(key: Key) -> dict[str, str]:
    return {"column" if key.is_column else "pair": key.name}


def from_json(value: object) -> Expression:
    """The expression; `FilterInvalid` points into the JSON text where it makes no sense."""
    return _Reader(value).expression(value, 0)


class _Reader:
    def __init__(self, whole: object) -> None:
        self._whole = whole

    def expression(self, value: object, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise self._error(value, f"nested more than {MAX_DEPTH} deep")
        kind, body = self._single(value, 'a filter such as {"exists": {"pair": "name"}}')
        match kind:
            case "and" | "or":
                parts = tuple(self.expression(part, depth + 1) for part in self._list(body))
                return And(parts) if kind == "and" else Or(parts)
            case "not":
                return Not(self.expression(body, depth + 1))
            case "exists":
                return Exists(self._key(body))
            case "equals":
                key, value = self._fields(body, "value")
                return Equals(key, self._value(key, value))
            case "in":
                key, values = self._fields(body, "values")
                return In(key, self._values(key, values))
            case "between":
                key, low, high = self._fields(body, "low", "high")
                return Between(key, self._bound(key, low), self._bound(key, high))
            case "matches":
                key, pattern = self._fields(body, "pattern")
                return Matches(key, self._pattern(pattern))
        raise self._error(value, f"{kind!r} is no kind of filter")

    def _single(self, value: object, wanted: str) -> tuple[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            raise self._error(value, f"expected {wanted}")
        ((kind, body),) = value.items()
        return kind, body

    def _list(self, value: object) -> list[Any]:
        if not isinstance(value, list):
            raise self._error(value, "expected a list")
        return value

    def _fields(self, body: object, *names: str) -> tuple[Any, ...]:
        if not isinstance(body, dict) or set(body) != {"key", *names}:
            raise self._error(body, f"expected an object of key, {', '.join(names)}")
        return (self._key(body["key"]), *(body[name] for name in names))

    def _key(self, value: object) -> Key:
        kind, name = self._single(value, 'a key such as {"pair": "name"}')
        name = self._text(name)
        if kind not in ("pair", "column"):
            raise self._error(value, "a key is a pair or a column")
        if kind == "column" and name not in COLUMNS:
            raise self._error(value, f"there is no column {name!r}; columns are {', '.join(sorted(COLUMNS))}")
        return Key(name, is_column=kind == "column")

    def _text(self, value: object) -> str:
        if not isinstance(value, str):
            raise self._error(value, "expected text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self._error(value, "the text has half of a surrogate pair") from error
        return value

    def _value(self, key: Key, value: object) -> str:
        kept, problem = checks.value_of(key, self._text(value))
        if problem:
            raise self._error(value, problem)
        return kept

    def _values(self, key: Key, values: object) -> tuple[str, ...]:
        if not self._list(values):
            raise self._error(values, "expected one value at least")
        return tuple(sorted({self._value(key, value) for value in self._list(values)}))

    def _bound(self, key: Key, value: object) -> Any:
        number, problem = checks.bound_of(key, self._text(value))
        if problem:
            raise self._error(value, problem)
        return number

    def _pattern(self, value: object) -> str:
        problem = checks.pattern_problem(self._text(value))
        if problem:
            raise self._error(value, problem)
        return self._text(value)

    def _error(self, part: object, reason: str) -> FilterInvalid:
        text = json.dumps(self._whole, default=repr)
        return invalid(text, max(0, text.find(json.dumps(part, default=repr))), reason)
