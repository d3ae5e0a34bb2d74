"""Filters as DESIGN says them, one update at a time and as plainly as can be: what the vectorised evaluator must equal.

A key reads as text: None where it is NULL, `ABSENT` where the update does not have it. Columns always exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.updates.filters import And, Between, Equals, Exists, Expression, In, Key, Matches, Not, Or

ABSENT: Final = object()
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")


def rows_that_pass(expression: Expression, batch: pa.RecordBatch) -> list[bool]:
    return [passes(expression, row) for row in _rows(batch)]


def _rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    yield from batch.to_pylist()


def passes(expression: Expression, row: Mapping[str, Any]) -> bool:
    match expression:
        case And(parts):
            return all(passes(part, row) for part in parts)
        case Or(parts):
            return any(passes(part, row) for part in parts)
        case Not(part):
            return not passes(part, row)
        case Exists(key):
            return _value(key, row) is not ABSENT
    value = _value(expression.key, row)
    if not isinstance(value, bytes):
        return False
    match expression:
        case Equals(_, wanted):
            return value == wanted.encode()
        case In(_, values):
            return value in [wanted.encode() for wanted in values]
        case Between(key, low, high):
            number = _number(key, value, row)
            return number is not None and low <= number <= high
        case Matches(_, pattern):
            return _found(pattern, value)


def _value(key: Key, row: Mapping[str, Any]) -> Any:
    if not key.is_column:
        return dict(row["pairs"] or []).get(key.name, ABSENT)
    value = row[key.name]
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
    return str(value).encode()


def _number(key: Key, value: bytes, row: Mapping[str, Any]) -> Decimal | None:
    if key == Key("committed_at", is_column=True):
        since = row["committed_at"] - datetime(1970, 1, 1, tzinfo=UTC)
        return Decimal(since.days * 86_400 + since.seconds) + Decimal(since.microseconds) / 1_000_000
    if len(value) > 400 or not _NUMBER.fullmatch(value):
        return None
    return Decimal(value.decode())


def _found(pattern: str, value: bytes) -> bool:
    """RE2 over one value, which may be no UTF-8."""
    held = pa.array([value], pa.binary())
    text: Any = pa.Array.from_buffers(pa.string(), 1, held.buffers())
    matched: Any = pc.match_substring_regex(text, pattern)
    return bool(matched[0].as_py())
