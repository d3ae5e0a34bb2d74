"""What a filter says, as values: basic filters on keys, joined by `And`, `Or` and `Not`.

A key is a pair's name or a column's. Every key reads as text: numbers in decimal, `committed_at` as
`2026-11-18T21:40:08.000000Z`, a binary key by its bytes, which are compared with the UTF-8 of the filter's text. The
text form of an expression (`str`) is what a user would type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from tailrace.updates.instants import EPOCH, instant_text, seconds_of

NUMBER_COLUMNS: Final = ("shard", "era", "sequence", "index")
TEXT_COLUMNS: Final = ("table", "operation", "key")
TIME_COLUMN: Final = "committed_at"
COLUMNS: Final = frozenset((*NUMBER_COLUMNS, *TEXT_COLUMNS, TIME_COLUMN))
KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "EXISTS", "IN", "BETWEEN", "MATCHES", "TRUE", "FALSE"))
NAME: Final = r"[^\W\d][\w.\-]*"
_FIRST_SECOND = Decimal(-62_135_596_800)  # year 1
_LAST_SECOND = Decimal(253_402_300_799)  # year 9999
_BARE = re.compile(NAME + r"\Z")


@dataclass(frozen=True, slots=True)
class Key:
    """What a basic filter looks at: a column, or the pair of that name."""

    name: str
    is_column: bool = False

    def __str__(self) -> str:
        if self.is_column:
            return self.name
        if self.name in COLUMNS or self.name == "pairs":
            return f"pairs[{quoted(self.name)}]"
        if _BARE.match(self.name) and self.name.upper() not in KEYWORDS:
            return self.name
        return '"' + self.name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Exists:
    """The key is there, even if its value is NULL; a column always is."""

    key: Key

    def __str__(self) -> str:
        return f"EXISTS {self.key}"


@dataclass(frozen=True, slots=True)
class Equals:
    key: Key
    value: str

    def __str__(self) -> str:
        return f"{self.key} = {quoted(self.value)}"


@dataclass(frozen=True, slots=True)
class In:
    """The value is one of these; `values` are sorted and distinct."""

    key: Key
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key} IN ({', '.join(map(quoted, self.values))})"


@dataclass(frozen=True, slots=True)
class Between:
    """The value is a number in [low, high]; of `committed_at`, the seconds since 1970."""

    key: Key
    low: Decimal
    high: Decimal

    def __str__(self) -> str:
        return f"{self.key} BETWEEN {_bound(self.key, self.low)} AND {_bound(self.key, self.high)}"


@dataclass(frozen=True, slots=True)
class Matches:
    """The RE2 expression is found somewhere in the value."""

    key: Key
    pattern: str

    def __str__(self) -> str:
        return f"{self.key} MATCHES {quoted(self.pattern)}"


Basic: TypeAlias = Exists | Equals | In | Between | Matches


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression

    def __str__(self) -> str:
        return f"NOT {_grouped(self.part)}"


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; without parts it is TRUE."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " AND ".join(map(_grouped, self.parts)) or "TRUE"


@dataclass(frozen=True, slots=True)
class Or:
    """One part holds; without parts it is FALSE."""

    parts: tuple[Expression, ...]

    def __str__(self) -> str:
        return " OR ".join(map(_grouped, self.parts)) or "FALSE"


Expression: TypeAlias = Basic | Not | And | Or
TRUE: Final = And(())
FALSE: Final = Or(())


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _grouped(part: Expression) -> str:
    return f"({part})" if isinstance(part, And | Or) and part.parts else str(part)


def _bound(key: Key, number: Decimal) -> str:
    if key.is_column and key.name == TIME_COLUMN:
        text = _time_bound(number)
        return quoted(text) if text else str(number)
    return str(number)


def _time_bound(seconds: Decimal) -> str | None:
    """The bound as a date, if it is one that a timestamp can hold exactly."""
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return None
    moment = EPOCH + timedelta(microseconds=int(seconds * 1_000_000))
    return instant_text(moment) if seconds_of(moment) == seconds else None
