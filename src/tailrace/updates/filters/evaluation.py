"""A filter made ready to run: the tree of its negation normal form, with a prepared probe at every leaf.

Equal basic filters share one probe, whichever filters they come from, so that an answer is found by identity.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

from tailrace.updates.filters.lookups import Lookups
from tailrace.updates.filters.operands import Interval, Pattern, Word, WordSet
from tailrace.updates.filters.syntax import And, Basic, Between, Equals, Exists, Expression, In, Matches, Not, Or
from tailrace.updates.filters.values import Values
from tailrace.updates.kernels import Flags

MAX_SHARED_PROBES: Final = 16_384


class Node(Protocol):
    def flags(self, lookups: Lookups) -> Flags:
        """Which rows pass. Not to be written to: others may hold the same array."""


class Probe:
    """One basic filter."""

    __slots__ = ("_key", "_operand")

    def __init__(self, basic: Basic) -> None:
        self._key = basic.key
        self._operand = _operand(basic)

    def flags(self, lookups: Lookups) -> Flags:
        found = lookups.answers.get(self)
        if found is None:
            lookups.answers[self] = found = self._ask(lookups.values(self._key))
        return found

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
    __slots__ = ("_part",)

    def __init__(self, part: Node) -> None:
        self._part = part

    def flags(self, lookups: Lookups) -> Flags:
        return ~self._part.flags(lookups)


class AllOf:
    """Stops at the first part that leaves nothing: most ANDs begin with a table that a batch may not hold at all."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        self._parts = parts

    def flags(self, lookups: Lookups) -> Flags:
        if not self._parts:
            return lookups.all
        found = self._parts[0].flags(lookups)
        for part in self._parts[1:]:
            if not found.any():
                break
            found = found & part.flags(lookups)
        return found


class AnyOf:
    """Stops once everything passes."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Node, ...]) -> None:
        self._parts = parts

    def flags(self, lookups: Lookups) -> Flags:
        if not self._parts:
            return lookups.none
        found = self._parts[0].flags(lookups)
        for part in self._parts[1:]:
            if found.all():
                break
            found = found | part.flags(lookups)
        return found


def prepared(expression: Expression) -> Node:
    """The tree that evaluates an expression in negation normal form."""
    match expression:
        case And(parts):
            return AllOf(tuple(map(prepared, parts)))
        case Or(parts):
            return AnyOf(tuple(map(prepared, parts)))
        case Not(part):
            return Negated(prepared(part))
    return shared_probe(expression)
