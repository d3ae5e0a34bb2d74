"""The normal form of a filter: an OR of ANDs of basic filters and their negations, without order or repeats.

Negations are pushed down to the basic filters first (`negation_normal`), then ANDs are multiplied out over ORs. A term
that asks for a basic filter and its negation can never hold and is left out. Filters are equal when their normal forms
are; multiplying out can grow without end, so it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from tailrace.updates.filters.syntax import And, Basic, Equals, Expression, In, Not, Or

MAX_TERMS: Final = 1_000
MAX_LITERALS: Final = 20_000  # basic filters in all terms together

Literal: TypeAlias = Basic | Not  # a basic filter, or the `Not` of one
Term: TypeAlias = frozenset[Literal]
Normal: TypeAlias = frozenset[Term]


class TooManyTerms(Exception):
    """Multiplying out this expression passes the bounds. The parser turns it into a `FilterInvalid` with a place."""

    def __init__(self, expression: Expression) -> None:
        super().__init__(f"more than {MAX_TERMS} terms in normal form")
        self.expression = expression


def negation_normal(expression: Expression, *, negated: bool = False) -> Expression:
    """The same filter with `Not` on basic filters only, and no And in an And nor Or in an Or."""
    match expression:
        case Not(part):
            return negation_normal(part, negated=not negated)
        case And(parts) | Or(parts):
            joined = And if isinstance(expression, And) is not negated else Or
            return joined(tuple(_flat(joined, (negation_normal(part, negated=negated) for part in parts))))
        case In(key, (value,)):
            expression = Equals(key, value)
    return Not(expression) if negated else expression


def _flat(joined: type[And] | type[Or], parts: Iterable[Expression]) -> Iterable[Expression]:
    for part in parts:
        if isinstance(part, And | Or) and type(part) is joined:
            yield from part.parts
        else:
            yield part


def disjunctive_normal(expression: Expression, *, negated: bool = False) -> Normal:
    """The terms of which one must hold. Follows the expression as it was typed, so that an error knows its place."""
    match expression:
        case Not(part):
            return disjunctive_normal(part, negated=not negated)
        case And(parts) | Or(parts):
            forms = [disjunctive_normal(part, negated=negated) for part in parts]
            conjunction = isinstance(expression, And) is not negated
            return _product(expression, forms) if conjunction else _union(expression, forms)
    return frozenset({frozenset({_literal(expression, negated)})})


def _literal(basic: Basic, negated: bool) -> Literal:
    if isinstance(basic, In) and len(basic.values) == 1:
        basic = Equals(basic.key, basic.values[0])
    return Not(basic) if negated else basic


def _union(expression: Expression, forms: list[Normal]) -> Normal:
    return _bounded(expression, {term for form in forms for term in form})


def _product(expression: Expression, forms: list[Normal]) -> Normal:
    product: set[Term] = {frozenset()}
    for form in forms:
        larger: set[Term] = set()
        literals = 0
        for left in product:
            for right in form:
                term = left | right
                if term in larger or not _can_hold(term):
                    continue
                larger.add(term)
                literals += len(term)
                if len(larger) > MAX_TERMS or literals > MAX_LITERALS:
                    raise TooManyTerms(expression)
        product = larger
    return frozenset(product)


def _bounded(expression: Expression, terms: set[Term]) -> Normal:
    if len(terms) > MAX_TERMS or sum(map(len, terms)) > MAX_LITERALS:
        raise TooManyTerms(expression)
    return frozenset(terms)


def _can_hold(term: Term) -> bool:
    return not any(isinstance(literal, Not) and literal.part in term for literal in term)
