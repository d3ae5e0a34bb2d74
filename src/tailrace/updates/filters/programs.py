"""A filter as a program for the `machine`, put together once; and several filters' programs as one.

Filters whose parts take Python in every batch have no program: regular expressions that are RE2's, plain text that may
stand anywhere in a value. These are evaluated part by part, as `evaluation` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from tailrace.updates.filters import machine
from tailrace.updates.filters.operands import INT64_MAX, INT64_MIN, Interval, WordSet
from tailrace.updates.filters.patterns import Pattern
from tailrace.updates.filters.syntax import (
    NUMBER_COLUMNS,
    TIME_COLUMN,
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
from tailrace.updates.filters.tags import MAX_FEW_WORDS
from tailrace.updates.kernels import Int64s

# What a program wants to be read of a key's values, beyond where they lie.
TAGS: Final = 1
NUMBERS: Final = 2
_WIDE_COLUMNS: Final = ("sequence", TIME_COLUMN)

Instruction = tuple[int, int, int, int, int]


class NoProgram(Exception):
    """The expression has a part that the machine does not know."""


class Program:
    """The code of one filter or of several, one after another; `ends` is where each one's ends."""

    __slots__ = ("_operands", "code", "depth", "ends", "wanted")

    def __init__(
        self, code: Int64s, ends: Int64s, depth: int, wanted: Sequence[tuple[Key, int]], operands: Sequence[Any]
    ) -> None:
        self.code = code
        self.ends = ends
        self.depth = depth
        self.wanted = tuple(wanted)
        self._operands = operands  # whose addresses are in the code

    @staticmethod
    def of(expression: Expression) -> Program | None:
        """The program of an expression in negation normal form, if it has one."""
        writer = _Writer()
        try:
            writer.write(expression)
        except NoProgram:
            return None
        code = np.array(writer.code, np.int64).reshape(-1, machine.INSTRUCTION_WIDTH)
        ends = np.array([len(code)], np.int64)
        return Program(code, ends, writer.depth, list(writer.wanted.items()), writer.operands)

    @staticmethod
    def joined(programs: Iterable[Program]) -> Program:
        """All programs as one, in their order."""
        parts = list(programs)
        wanted: dict[Key, int] = {}
        for part in parts:
            for key, needs in part.wanted:
                wanted[key] = wanted.get(key, 0) | needs
        lines = {key: line for line, key in enumerate(wanted)}
        codes = [part.code.copy() for part in parts]
        for part, code in zip(parts, codes, strict=True):
            moved = np.array([lines[key] for key, _ in part.wanted] or [0], np.int64)
            code[:, 1] = moved[code[:, 1]]
        ends = np.cumsum([len(code) for code in codes], dtype=np.int64)
        return Program(np.concatenate(codes), ends, max(part.depth for part in parts), list(wanted.items()), parts)


class Joined:
    """Programs that run together: `lines` is which of the answers is whose."""

    __slots__ = ("lines", "program")

    def __init__(self, programs: Iterable[Program]) -> None:
        distinct = list(dict.fromkeys(programs))
        self.lines = {program: line for line, program in enumerate(distinct)}
        self.program = Program.joined(distinct) if distinct else None


class _Writer:
    def __init__(self) -> None:
        self.code: list[Instruction] = []
        self.wanted: dict[Key, int] = {}
        self.operands: list[Any] = []
        self.depth = 1
        self._lines: dict[Key, int] = {}
        self._height = 0

    def write(self, expression: Expression) -> None:
        match expression:
            case And(parts):
                self._joined(parts, machine.AND, machine.ALL)
            case Or(parts):
                self._joined(parts, machine.OR, machine.NONE)
            case Not(part):
                self.write(part)
                self.code.append((machine.NOT, 0, 0, 0, 0))
            case _:
                self._basic(expression)

    def _joined(self, parts: tuple[Expression, ...], how: int, of_nothing: int) -> None:
        if not parts:
            self._push(of_nothing)
        for number, part in enumerate(parts):
            self.write(part)
            if number:
                self.code.append((how, 0, 0, 0, 0))
                self._height -= 1

    def _push(self, what: int, line: int = 0, first: int = 0, second: int = 0, third: int = 0) -> None:
        self.code.append((what, line, first, second, third))
        self._height += 1
        self.depth = max(self.depth, self._height)

    def _line(self, key: Key, needs: int = 0) -> int:
        self.wanted[key] = self.wanted.get(key, 0) | needs
        return self._lines.setdefault(key, len(self._lines))

    def _address(self, array: Any) -> int:
        self.operands.append(array)
        return int(array.ctypes.data)

    def _basic(self, basic: Basic) -> None:
        key = basic.key
        if isinstance(basic, Exists):
            if key.is_column:
                self._push(machine.ALL)
            else:
                self._push(machine.EXISTS, self._line(key))
        elif key.is_column and (key.name in NUMBER_COLUMNS or key.name == TIME_COLUMN):
            self._whole(key, basic)
        else:
            self._text(key, basic)

    def _whole(self, key: Key, basic: Equals | In | Between | Matches) -> None:
        is_wide, is_time = key.name in _WIDE_COLUMNS, key.name == TIME_COLUMN
        if isinstance(basic, Matches):
            raise NoProgram
        if isinstance(basic, Between):
            low, high = Interval(basic.low, basic.high).whole(scale=6 if is_time else 0)
            low, high = max(low, INT64_MIN), min(high, INT64_MAX)
            if low > high:
                self._push(machine.NONE)
            else:
                self._push(machine.WHOLE64 if is_wide else machine.WHOLE32, self._line(key), low, high)
            return
        words = _words(basic)
        found = words.instants_us if is_time else words.numbers
        if len(found) > MAX_FEW_WORDS:
            raise NoProgram
        wanted = np.array(found, np.int64)
        what = machine.ANY_WHOLE64 if is_wide else machine.ANY_WHOLE32
        self._push(what, self._line(key), self._address(wanted), len(wanted))

    def _text(self, key: Key, basic: Equals | In | Between | Matches) -> None:
        match basic:
            case Between(_, low, high):
                interval = Interval(low, high)
                bounds = np.array([interval.low_float, interval.high_float])
                line = self._line(key, NUMBERS | TAGS)
                self._push(machine.BETWEEN, line, self._address(bounds), int(interval.is_long))
            case Matches(_, pattern):
                self._pattern(key, Pattern(pattern))
            case Equals() | In():
                self._among(key, _words(basic))

    def _among(self, key: Key, words: WordSet) -> None:
        held = (words.tags, words.offsets, words.bytes, words.table)
        listed = np.array([*map(self._address, held), len(words.tags), len(words.table)], np.int64)
        self._push(machine.AMONG, self._line(key, TAGS), self._address(listed))

    def _pattern(self, key: Key, pattern: Pattern) -> None:
        if pattern.classes is not None:
            flags = pattern.classes.flags
            self._push(machine.CLASSES, self._line(key), self._address(flags), len(flags), pattern.classes.ends)
            return
        literal = pattern.literal
        if literal is None:
            raise NoProgram
        if literal.at_start and literal.at_end:
            self._among(key, WordSet((literal.text,)))
        elif literal.at_start or literal.at_end or not literal.text:
            plain = literal.word.bytes
            self._push(machine.AFFIXED, self._line(key), self._address(plain), len(plain), int(literal.at_end))
        else:
            raise NoProgram


def _words(basic: Equals | In) -> WordSet:
    return WordSet((basic.value,) if isinstance(basic, Equals) else basic.values)
