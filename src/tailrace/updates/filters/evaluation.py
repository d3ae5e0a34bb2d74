"""A filter made ready to run: the tree of its negation normal form, with a prepared probe at every leaf.

Equal basic filters share one probe, whichever filters they come from, so that an answer is found by identity. Regular
expressions come last in every AND and OR, and are searched for only in the rows that the other parts leave open.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol

import numpy as np

from tailrace.updates.filters.lookups import Lookups
from tailrace.updates.filters.operands import Interval, Word, WordSet
from tailrace.updates.filters.patterns import Pattern
from tailrace.updates.filters.syntax import And, Basic, Between, Equals, Exists, Expression, In, Matches, Not, Or
from tailrace.updates.filters.values import Texts, Values
from tailrace.updates.kernels import Flags

MAX_SHARED_PROBES: Final = 16_384
OPEN_SHARE: Final = 0.5  # an expression is searched for in the open rows alone if they are fewer than this


class Node(Protocol):
    is_costly: bool

    def flags(self, lookups: Lookups) -> Flags:
        """Which rows pass. Not to be written to: others may hold the same array."""

    def among(self, asked: Flags, lookups: Lookups) -> Flags:
        """Which of the rows asked for pass; may be cheaper than asking for all."""


class Probe:
    """One basic filter."""

    __slots__ = ("_key", "_operand", "is_costly")

    def __init__(self, basic: Basic) -> None:
        self._key = basic.key
        self._operand = _operand(basic)
        self.is_costly = isinstance(self._operand, Pattern) and self._operand.is_costly

    def flags(self, lookups: Lookups) -> Flags:
        found = lookups.answers.get(self)
        if found is None:
            lookups.answers[self] = found = self._ask(lookups.values(self._key))
        return found

    def among(self, asked: Flags, lookups: Lookups) -> Flags:
        if self.is_costly and self not in lookups.answers:
            values = lookups.values(self._key)
            rows = np.flatnonzero(asked)
            if isinstance(values, Texts) and len(rows) < OPEN_SHARE * lookups.rows:
                flags = np.zeros(lookups.rows, np.bool_)
                flags[rows] = self._ask(values.within(rows))
                return flags
        return asked & self.flags(lookups)

    def _ask(self, values: Values) -> Flags:
        match self._operand:
            case None:
                return values.exists()
            case Word() as word:
                return values.equals(word)
            case WordSet() as words:
                return values.among(words)
            case Interval() as interval:
                return values.between(interval)
            case Pattern() as pattern:
                return values.matches(pattern)


def _operand(basic: Basic) -> Word | WordSet | Interval | Pattern | None:
    match basic:
        case Exists():
            return None
        case Equals(_, value):
            return Word(value)
        case In(_, values):
            return WordSet(values)
        case Between(_, low, high):
            return Interval(low, high)
        case Matches(_, pattern):
            return Pattern(pattern)


shared_probe = lru_cache(MAX_SHARED_PROBES)(Probe)


class Negated:
    __slots__ = ("_part", "is_costly")

    def __init__(self, part: Node) -> None:
        self._part = part
        self.is_costly = part.is_costly

    def flags(self, lookups: Lookups) -> Flags:
        return ~self._part.flags(lookups)

    def among(self, asked: Flags, lookups: Lookups) -> Flags:
        return asked & ~self._part.among(asked, lookups)


class AllOf:
    """Stops at the first part that leaves nothing: most ANDs begin with a table that a batch may not hold at all."""

    __slots__ = ("_parts", "is_costly")

    def __init__(self, parts: Iterable[Node]) -> None:
        self._parts = _costly_last(parts)
        self.is_costly = any(part.is_costly for part in self._parts)

    def flags(self, lookups: Lookups) -> Flags:
        if not self._parts:
            return lookups.all
        return self._narrowed(self._parts[0].flags(lookups), self._parts[1:], lookups)

    def among(self, asked: Flags, lookups: Lookups) -> Flags:
        return self._narrowed(asked, self._parts, lookups)

    def _narrowed(self, found: Flags, parts: tuple[Node, ...], lookups: Lookups) -> Flags:
        for part in parts:
            if not found.any():
                break
            found = part.among(found, lookups)
        return found


class AnyOf:
    """Stops once everything passes."""

    __slots__ = ("_parts", "is_costly")

    def __init__(self, parts: Iterable[Node]) -> None:
        self._parts = _costly_last(parts)
        self.is_costly = any(part.is_costly for part in self._parts)

    def flags(self, lookups: Lookups) -> Flags:
        if not self._parts:
            return lookups.none
        found = self._parts[0].flags(lookups)
        for part in self._parts[1:]:
            if part.is_costly:
                found = found | part.among(~found, lookups)
            else:
                found = found | part.flags(lookups)
        return found

    def among(self, asked: Flags, lookups: Lookups) -> Flags:
        return asked & self.flags(lookups)


def _costly_last(parts: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(parts, key=lambda part: part.is_costly))


def prepared(expression: Expression) -> Node:
    """The tree that evaluates an expression in negation normal form."""
    match expression:
        case And(parts):
            return AllOf(map(prepared, parts))
        case Or(parts):
            return AnyOf(map(prepared, parts))
        case Not(part):
            return Negated(prepared(part))
    return shared_probe(expression)
