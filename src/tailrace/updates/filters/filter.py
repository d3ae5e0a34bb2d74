"""A filter as applications, records and publishers hold it: text, JSON, and a mask over a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tailrace.errors import FilterInvalid
from tailrace.updates.buffers import boolean_array
from tailrace.updates.filters import json_form
from tailrace.updates.filters.evaluation import Node, prepared
from tailrace.updates.filters.lookups import Lookups
from tailrace.updates.filters.normal import Normal, TooManyTerms, disjunctive_normal, negation_normal
from tailrace.updates.filters.parser import Parser
from tailrace.updates.filters.syntax import TRUE, Expression
from tailrace.updates.filters.tokens import invalid
from tailrace.updates.kernels import Flags


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Which updates pass. Filters with the same normal form are equal and hash alike."""

    expression: Expression
    normal: Normal = field(repr=False)
    _prepared: Node = field(repr=False)

    @staticmethod
    def parse(text: str) -> Filter:
        """A filter as a user types it: topic = 'aq' OR EXISTS mcd. Fails with `FilterInvalid`, a caret at the place."""
        parser = Parser(text)
        expression = parser.parse()
        try:
            return Filter.of(expression)
        except TooManyTerms as error:
            raise invalid(text, parser.places.get(id(error.expression), 0), str(error)) from error

    @staticmethod
    def from_json(value: object) -> Filter:
        """The filter that `to_json` described."""
        try:
            return Filter.of(json_form.from_json(value))
        except TooManyTerms as error:
            raise FilterInvalid(text=str(error.expression)[:80], at=0, reason=str(error)) from error

    @staticmethod
    def of(expression: Expression) -> Filter:
        """A filter that code put together. `TooManyTerms` if its normal form is too large."""
        return Filter(expression, disjunctive_normal(expression), prepared(negation_normal(expression)))

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
        return boolean_array(self.flags(batch, lookups))

    def flags(self, batch: pa.RecordBatch, lookups: Lookups | None = None) -> Flags:
        """As `mask`, as numpy flags, which are not to be written to."""
        return self._prepared.flags(lookups or Lookups(batch))

    def select(self, batch: pa.RecordBatch, lookups: Lookups | None = None) -> pa.RecordBatch:
        """The rows that pass; the batch itself if all do."""
        if self.passes_everything:
            return batch
        flags = self.flags(batch, lookups)
        return batch if flags.all() else batch.filter(boolean_array(flags))
