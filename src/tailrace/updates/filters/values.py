"""The values of one key in all rows of a batch, and how each kind answers a basic filter: one flag per row.

`Texts` are bytes that stay where they are in the Arrow buffers; words are compared by tag. Before a regular expression
is searched for, the distinct values are numbered, if they are few: it is then put to those alone, and each row takes
its value's answer. `Numbers` and `Instants` are the columns that are not text; they answer as if they were.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.updates.buffers import BytesColumn, valid_of
from tailrace.updates.filters import machine, scans, tags
from tailrace.updates.filters.number_scan import LONG, UNREAD, Floats, Kinds, read_numbers, rows_at
from tailrace.updates.filters.numbers import MAX_NUMBER_BYTES, parsed_number
from tailrace.updates.filters.operands import Interval, Word, WordSet, power_of_two_over
from tailrace.updates.filters.patterns import Literal, Pattern
from tailrace.updates.filters.programs import NUMBERS, TAGS
from tailrace.updates.kernels import Flags, Int32s, Int64s

MAX_NUMBERED_BYTES: Final = 100  # values longer than this on average are not numbered
MIN_DISTINCT: Final = 64  # fewer distinct values than this are always few
ROWS_PER_DISTINCT: Final = 4  # values are few if each stands in so many rows on average
_NONE_NULL: Flags = np.zeros(0, np.bool_)
_NO_TAGS: tags.Tags = np.zeros(0, np.uint64)
_NO_NUMBERS: tuple[Floats, Kinds] = (np.zeros(0, np.float64), np.zeros(0, np.uint8))


class Values(Protocol):
    def exists(self) -> Flags: ...
    def equals(self, word: Word) -> Flags: ...
    def among(self, words: WordSet) -> Flags: ...
    def between(self, interval: Interval) -> Flags: ...
    def matches(self, pattern: Pattern) -> Flags: ...

    def describe(self, frame: machine.Frame, line: int, needs: int) -> None:
        """Writes into a line of the machine's frame where the values lie, and what is needed of them."""


class Texts:
    """Bytes at `places` of a column; -1 is a row that has none. `array` holds the same column for RE2."""

    def __init__(self, places: Int32s, column: BytesColumn, array: Any) -> None:
        self._places = places
        self._column = column
        self._array = array
        self._valid = _NONE_NULL if column.valid is None else column.valid

    @staticmethod
    def of(array: Any) -> Texts:
        """A whole column."""
        return Texts(np.arange(len(array), dtype=np.int32), BytesColumn.of(array), array)

    @cached_property
    def _tags(self) -> tags.Tags:
        return tags.tags_of(self._places, self._column.offsets, self._column.data, self._valid)

    def exists(self) -> Flags:
        return self._places >= 0

    def equals(self, word: Word) -> Flags:
        flags: Flags = self._tags == word.tag
        if word.is_long:
            tags.confirm(flags, self._places, self._column.offsets, self._column.data, word.bytes)
        return flags

    def among(self, words: WordSet) -> Flags:
        if len(words.tags) <= tags.MAX_FEW_WORDS and not words.any_long:
            return tags.any_equal(self._tags, words.tags)
        held = self._column
        return tags.among(
            self._tags, self._places, held.offsets, held.data, words.table, words.tags, words.offsets, words.bytes
        )

    def matches(self, pattern: Pattern) -> Flags:
        if pattern.literal is not None:
            return self._find(pattern.literal)
        if pattern.classes is not None:
            held, found = self._column, pattern.classes
            return scans.classed(self._places, held.offsets, held.data, self._valid, found.flags, found.ends)
        numbered = self._distinct
        return self._search(pattern.text) if numbered is None else numbered.spread(numbered.values.matches(pattern))

    def describe(self, frame: machine.Frame, line: int, needs: int) -> None:
        read = self._tags if needs & TAGS else _NO_TAGS
        floats, kinds = self._numbers if needs & NUMBERS else _NO_NUMBERS
        held = self._column
        machine.hold(frame, line, self._places, held.offsets, held.data, self._valid, read, floats, kinds)

    def within(self, rows: Int64s) -> Texts:
        """The values of some rows."""
        found = Texts(self._places[rows], self._column, self._array)
        if "_tags" in self.__dict__:
            found.__dict__["_tags"] = self._tags[rows]
        return found

    def between(self, interval: Interval) -> Flags:
        floats, kinds = self._numbers
        flags = (floats >= interval.low_float) & (floats <= interval.high_float)
        for row in rows_at(floats, kinds, interval.low_float, interval.high_float, interval.is_long).tolist():
            number = parsed_number(self._bytes(row))
            flags[row] = number is not None and interval.low <= number <= interval.high
        return flags

    @cached_property
    def _distinct(self) -> _Numbered | None:
        """The distinct values, if they are few."""
        rows = len(self._places)
        if rows <= MIN_DISTINCT or ("_tags" not in self.__dict__ and self._are_long()):
            return None
        limit = max(MIN_DISTINCT, rows // ROWS_PER_DISTINCT)
        codes, first_rows = np.empty(rows, np.int32), np.empty(limit, np.int64)
        held = self._column
        slots = power_of_two_over(2 * limit)
        found = tags.distinct(self._tags, self._places, held.offsets, held.data, codes, first_rows, slots)
        return None if found < 0 else _Numbered(codes, self.within(first_rows[:found]))

    def _are_long(self) -> bool:
        """Whether the first rows' values are so long that a tag costs more than it saves."""
        places = self._places[:MIN_DISTINCT]
        places = places[places >= 0]
        sizes = self._column.offsets[places + 1] - self._column.offsets[places]
        return int(sizes.sum()) > MAX_NUMBERED_BYTES * len(sizes)

    # ---- regular expressions ------------------------------------------------------------------------------------

    def _find(self, literal: Literal) -> Flags:
        plain, held = literal.word.bytes, self._column
        if literal.at_start and literal.at_end:
            return self.equals(literal.word)
        if len(plain) == 0:
            return cast(Flags, self._tags != tags.NO_VALUE)
        if literal.at_start or literal.at_end:
            return scans.affixed(self._places, held.offsets, held.data, self._valid, plain, literal.at_end)
        return scans.containing(self._places, held.offsets, held.data, self._valid, plain)

    def _search(self, pattern: str) -> Flags:
        found: Any = pc.match_substring_regex(self._text, pattern)
        return cast(Flags, found.fill_null(False).to_numpy(zero_copy_only=False))

    @cached_property
    def _text(self) -> pa.StringArray:
        """The values side by side, as RE2 reads them: bytes that are no UTF-8 match no character, but fail nothing."""
        taken: Any = self._array.take(pa.array(self._places, mask=self._places < 0))
        return cast(
            pa.StringArray,
            pa.Array.from_buffers(pa.string(), len(taken), taken.buffers(), taken.null_count, taken.offset),
        )

    # ---- numbers ------------------------------------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> tuple[Floats, Kinds]:
        rows = len(self._places)
        floats, kinds = np.empty(rows, np.float64), np.empty(rows, np.uint8)
        held = self._column
        if read_numbers(self._tags, self._places, held.offsets, held.data, floats, kinds, MAX_NUMBER_BYTES):
            for row in np.flatnonzero(kinds == UNREAD).tolist():
                floats[row] = float(self._bytes(row))
                kinds[row] = LONG
        return floats, kinds

    def _bytes(self, row: int) -> bytes:
        place = self._places[row]
        return self._column.data[self._column.offsets[place] : self._column.offsets[place + 1]].tobytes()


class _Numbered:
    """The distinct values of a key, and which of them each row has."""

    def __init__(self, codes: Int32s, values: Texts) -> None:
        self._codes = codes
        self.values = values

    def spread(self, answers: Flags) -> Flags:
        yes = np.flatnonzero(answers)
        if len(yes) == 1:
            return cast(Flags, self._codes == np.int32(yes[0]))
        if len(yes) == 0:
            return np.zeros(len(self._codes), np.bool_)
        return tags.spread(answers, self._codes)


class Numbers:
    """A column of whole numbers, which reads as decimal text."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._numbers = array.to_numpy(zero_copy_only=False)

    def exists(self) -> Flags:
        return np.ones(len(self._numbers), np.bool_)

    def equals(self, word: Word) -> Flags:
        return whole_equal(self._numbers, word.number)

    def among(self, words: WordSet) -> Flags:
        return whole_among(self._numbers, words.numbers)

    def between(self, interval: Interval) -> Flags:
        return whole_between(self._numbers, *interval.whole())

    def matches(self, pattern: Pattern) -> Flags:
        return self._texts.matches(pattern)

    def describe(self, frame: machine.Frame, line: int, needs: int) -> None:
        machine.hold_whole(frame, line, self._numbers, _NONE_NULL)

    @cached_property
    def _texts(self) -> Texts:
        return Texts.of(self._array.cast(pa.string()))


class Instants:
    """The commit times, which read as text in UTC; a row without one is NULL."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._us: Int64s = array.cast(pa.int64()).fill_null(0).to_numpy()
        self._valid = valid_of(array)

    def _held(self, flags: Flags) -> Flags:
        return flags if self._valid is None else flags & self._valid

    def exists(self) -> Flags:
        return np.ones(len(self._us), np.bool_)

    def equals(self, word: Word) -> Flags:
        return self._held(whole_equal(self._us, word.instant_us))

    def among(self, words: WordSet) -> Flags:
        return self._held(whole_among(self._us, words.instants_us))

    def between(self, interval: Interval) -> Flags:
        return self._held(whole_between(self._us, *interval.whole(scale=6)))

    def matches(self, pattern: Pattern) -> Flags:
        return self._texts.matches(pattern)

    def describe(self, frame: machine.Frame, line: int, needs: int) -> None:
        machine.hold_whole(frame, line, self._us, _NONE_NULL if self._valid is None else self._valid)

    @cached_property
    def _texts(self) -> Texts:
        return Texts.of(pc.strftime(self._array, "%Y-%m-%dT%H:%M:%SZ"))


def whole_equal(numbers: Any, wanted: int | None) -> Flags:
    return np.zeros(len(numbers), np.bool_) if wanted is None else cast(Flags, numbers == wanted)


def whole_among(numbers: Any, wanted: list[int]) -> Flags:
    if len(wanted) > tags.MAX_FEW_WORDS:
        return np.isin(numbers, np.array(wanted, np.int64))
    flags = np.zeros(len(numbers), np.bool_)
    for number in wanted:
        flags |= numbers == number
    return flags


def whole_between(numbers: Any, low: int, high: int) -> Flags:
    """Bounds may lie outside what the column can hold."""
    held = np.iinfo(numbers.dtype)
    low, high = max(low, int(held.min)), min(high, int(held.max))
    if low > high:
        return np.zeros(len(numbers), np.bool_)
    return cast(Flags, (numbers >= low) & (numbers <= high))
