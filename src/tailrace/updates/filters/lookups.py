"""What all filters over one batch share: where each key's values are, what was read from them, and every answer.

A publisher evaluates the filters of all applications over the same batch. Finding a pair in each row, reading its
number, numbering a column's distinct values is done once per batch, and a basic filter that two applications have in
common is answered once. A `Lookups` belongs to one batch and one thread.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tailrace.updates.buffers import bytes_of_bits
from tailrace.updates.filters import machine
from tailrace.updates.filters.programs import Joined, Program
from tailrace.updates.filters.syntax import NUMBER_COLUMNS, TIME_COLUMN, Key
from tailrace.updates.filters.values import Instants, Numbers, Texts, Values
from tailrace.updates.kernels import Flags
from tailrace.updates.pair_index import PairIndex

FRAME_LINES: Final = 8  # for so many keys at first


class Lookups:
    def __init__(self, batch: pa.RecordBatch, joined: Joined | None = None) -> None:
        self._batch = batch
        self._joined = joined  # the programs of which all are run when one is asked for
        self.rows = batch.num_rows
        self.answers: dict[object, Flags] = {}  # by prepared basic filter; see `evaluation`
        self._values: dict[Key, Values] = {}
        self._lines: dict[Key, tuple[int, int]] = {}  # where in the frame, and what has been read
        self._frame: machine.Frame = np.empty((FRAME_LINES, machine.FRAME_WIDTH), np.int64)

    def values(self, key: Key) -> Values:
        found = self._values.get(key)
        if found is None:
            self._values[key] = found = self._column(key.name) if key.is_column else self._pair(key.name)
        return found

    def bits(self, program: Program) -> pa.Buffer | None:
        """Which rows a program passes, a bit each; None where that takes more than the machine."""
        line = self._joined.lines.get(program) if self._joined else None
        if line is None:
            bits, unsure = self._run(program)
            return None if unsure[0] else bits
        bits, unsure = self._joined_answers
        width = bytes_of_bits(self.rows)
        return None if unsure[line] else bits.slice(line * width, width)

    @cached_property
    def _joined_answers(self) -> tuple[pa.Buffer, list[bool]]:
        assert self._joined is not None
        assert self._joined.program is not None
        return self._run(self._joined.program)

    def _run(self, program: Program) -> tuple[pa.Buffer, list[bool]]:
        """A line of bits for each of the program's filters, and which of them it could not answer exactly."""
        lines = np.array([self._line(key, needs) for key, needs in program.wanted], np.int64)
        filters = len(program.ends)
        bits, unsure = np.empty((filters, bytes_of_bits(self.rows)), np.uint8), np.empty(filters, np.bool_)
        machine.run(program.code, program.ends, lines, self._frame, self.rows, program.depth, bits, unsure)
        return pa.py_buffer(cast(Any, bits)), unsure.tolist()

    def _line(self, key: Key, needs: int) -> int:
        """Where in the frame the key's values are described, with at least what is needed of them."""
        line, held = self._lines.get(key, (-1, 0))
        if line >= 0 and held & needs == needs:
            return line
        if line < 0:
            line = len(self._lines)
            if line == len(self._frame):
                self._frame = np.concatenate([self._frame, np.empty_like(self._frame)])
        self._lines[key] = line, held | needs
        self.values(key).describe(self._frame, line, held | needs)
        return line

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
