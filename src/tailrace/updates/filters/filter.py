"""A filter as applications, records and publishers hold it: text, JSON, and a mask over a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.errors import FilterInvalid
from tailrace.updates.buffers import boolean_array, boolean_array_of
from tailrace.updates.filters import json_form
from tailrace.updates.filters.evaluation import Node, prepared
from tailrace.updates.filters.lookups import Lookups
from tailrace.updates.filters.normal import Normal, TooManyTerms, disjunctive_normal, negation_normal
from tailrace.updates.filters.parser import Parser
from tailrace.updates.filters.programs import Joined, Program
from tailrace.updates.filters.syntax import TRUE, Expression
from tailrace.updates.filters.tokens import invalid


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Which updates pass. Filters with the same normal form are equal and hash alike.

    `str` is the canonical text; whatever filter was accepted, its canonical text parses to an equal one.
    """

    expression: Expression
    normal: Normal = field(repr=False)
    _prepared: Node = field(repr=False)
    _program: Program | None = field(repr=False)

    @staticmethod
    def parse(text: str) -> Filter:
        """A filter as a user types it: topic = 'aq' OR EXISTS mcd. Fails with `FilterInvalid`, a caret at the place."""
        parser = Parser(text)
        expression = parser.parse()
        _check_canonical(str(expression), text)
        try:
            normal = disjunctive_normal(expression)
        except TooManyTerms as error:
            raise invalid(text, parser.places.get(id(error.expression), 0), str(error)) from error
        pushed = negation_normal(expression)
        return Filter(expression, normal, prepared(pushed), Program.of(pushed))

    @staticmethod
    def from_json(value: object) -> Filter:
        """The filter that `to_json` described."""
        return Filter.of(json_form.from_json(value))

    @staticmethod
    def of(expression: Expression) -> Filter:
        """A filter that code put together: the one that its text means, or `FilterInvalid` where it means none."""
        return Filter.parse(str(expression))

    @staticmethod
    def everything() -> Filter:
        return Filter.of(TRUE)

    @property
    def passes_everything(self) -> bool:
        return frozenset() in self.normal

    def to_json(self) -> dict[str, Any]:
        return json_form.to_json(self.expression)

    def __str__(self) -> str:
        return str(self.expression)

    def __eq__(self, other: object) -> bool:
        return self.normal == other.normal if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.normal)

    def mask(self, batch: pa.RecordBatch, lookups: Lookups | None = None) -> pa.BooleanArray:
        """Which rows pass, without NULLs. Filters over the same batch share what they look up through `lookups`."""
        lookups = lookups or Lookups(batch)
        if self._program is not None and lookups.rows:
            bits = lookups.bits(self._program)
            if bits is not None:
                return boolean_array_of(bits, lookups.rows)
        return boolean_array(self._prepared.flags(lookups))

    def select(self, batch: pa.RecordBatch, lookups: Lookups | None = None) -> pa.RecordBatch:
        """The rows that pass; the batch itself if all do."""
        return batch if self.passes_everything else picked(batch, self.mask(batch, lookups))


def _check_canonical(canonical: str, text: str) -> None:
    """A filter is sent and recorded in canonical form, which may be longer and nested deeper: it must parse too."""
    if canonical == text:
        return
    try:
        Parser(canonical).parse()
    except FilterInvalid as error:
        raise invalid(text, 0, f"in canonical form, as it is sent and recorded: {error.reason}") from error


def picked(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows that a mask names; the batch itself if those are all."""
    return batch if mask.true_count == batch.num_rows else batch.filter(mask)


class FilterSet:
    """Filters that will be asked about the same batches: the first answer over a batch finds those of all of them."""

    def __init__(self, filters: Iterable[Filter]) -> None:
        filters = tuple(filters)
        self._count = len(filters)
        self._joined = Joined(one._program for one in filters if one._program is not None)

    def __len__(self) -> int:
        return self._count

    def lookups(self, batch: pa.RecordBatch) -> Lookups:
        """What these filters' masks over the batch share; other filters may share it too."""
        return Lookups(batch, self._joined)
