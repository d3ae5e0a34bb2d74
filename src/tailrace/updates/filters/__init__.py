"""Filters: which updates an application asks for.

A filter is an OR of ANDs of basic filters: a key exists, equals a value, lies in a set (a list, a numeric interval, a
regular expression), or the negation of one. It is evaluated over a whole batch at once.
"""

from tailrace.updates.filters.filter import Filter, FilterSet, picked
from tailrace.updates.filters.lookups import Lookups
from tailrace.updates.filters.syntax import (
    And,
    Basic,
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

__all__ = [
    "And",
    "Basic",
    "Between",
    "Equals",
    "Exists",
    "Expression",
    "Filter",
    "FilterSet",
    "In",
    "Key",
    "Lookups",
    "Matches",
    "Not",
    "Or",
    "picked",
]
