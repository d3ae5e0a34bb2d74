"""What all filters over one batch share: where each key's values are, what was read from them, and every answer.

A publisher evaluates the filters of all applications over the same batch. Finding a pair in each row, reading its
number, numbering a column's distinct values is done once per batch, and a basic filter that two applications have in
common is answered once. A `Lookups` belongs to one batch and one thread.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tailrace.updates.filters.syntax import NUMBER_COLUMNS, TIME_COLUMN, Key
from tailrace.updates.filters.values import Instants, Numbers, Texts, Values
from tailrace.updates.kernels import Flags
from tailrace.updates.pair_index import PairIndex


class Lookups:
    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.rows = batch.num_rows
        self.answers: dict[object, Flags] = {}  # by prepared basic filter; see `evaluation`
        self._values: dict[Key, Values] = {}

    def values(self, key: Key) -> Values:
        found = self._values.get(key)
        if found is None:
            self._values[key] = found = self._column(key.name) if key.is_column else self._pair(key.name)
        return found

    def _column(self, name: str) -> Values:
        array: Any = self._batch.column(name)
        if name in NUMBER_COLUMNS:
            return Numbers(array)
        if name == TIME_COLUMN:
            return Instants(array)
        return Texts.of(array)

    def _pair(self, name: str) -> Values:
        pairs = self._pairs
        return Texts(pairs.places(name), pairs.values, pairs.items)

    @cached_property
    def _pairs(self) -> PairIndex:
        pairs: Any = self._batch.column("pairs")
        return PairIndex(pairs)

    @cached_property
    def all(self) -> Flags:
        return np.ones(self.rows, np.bool_)

    @cached_property
    def none(self) -> Flags:
        return np.zeros(self.rows, np.bool_)
