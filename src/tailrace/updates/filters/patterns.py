"""Regular expressions that are no more than plain text at one end, at both, or anywhere, or a choice of letters.

`^tmp_`, `\\.jpg$`, `abc`, `^[A-M]`, `-1[0-9]$`: they make up most filters, and comparing bytes is ten times faster than
RE2. Everything else is left to RE2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tailrace.updates.filters.operands import Word
from tailrace.updates.filters.scans import AT_END, AT_START
from tailrace.updates.kernels import Bytes, Flags

_PLAIN: Final = r"(?:[^\\.+*?()|\[\]{}^$]|\\[\\.+*?()|\[\]{}^$/\-])"
_LITERAL = re.compile(rf"(?P<start>\^?)(?P<plain>{_PLAIN}*)(?P<end>\$?)\Z", re.DOTALL)
_CLASS: Final = r"\[(?:[A-Za-z0-9](?:-[A-Za-z0-9])?)+\]"
_CLASSES = re.compile(rf"(?P<start>\^?)(?P<parts>(?:{_PLAIN}|{_CLASS})+)(?P<end>\$?)\Z", re.DOTALL)
_PART = re.compile(rf"{_CLASS}|{_PLAIN}", re.DOTALL)
_RANGE = re.compile(r"(.)(?:-(.))?")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
MAX_CLASSES: Final = 64  # so many bytes may be described; longer expressions are RE2's


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The plain text, and whether it has to stand at the value's start and end."""

    text: str
    word: Word
    at_start: bool
    at_end: bool


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """The bytes that may stand one after another at a value's start, its end or both: 256 flags for each place."""

    flags: Bytes
    ends: int


class Pattern:
    """A regular expression to be found, and the plain text or classes that it stands for if it is that simple."""

    __slots__ = ("classes", "literal", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.literal = literal_of(text)
        self.classes = None if self.literal else classes_of(text)

    @property
    def is_costly(self) -> bool:
        """Whether it takes RE2."""
        return self.literal is None and self.classes is None


def literal_of(pattern: str) -> Literal | None:
    found = _LITERAL.match(pattern)
    if not found:
        return None
    plain = _ESCAPE.sub(r"\1", found["plain"])
    return Literal(plain, Word(plain), bool(found["start"]), bool(found["end"]))


def classes_of(pattern: str) -> Classes | None:
    found = _CLASSES.match(pattern)
    if not found or not (found["start"] or found["end"]):
        return None
    parts = _PART.findall(found["parts"])
    if len(parts) > MAX_CLASSES:
        return None
    places: list[Flags] = []
    for part in parts:
        if len(part) > 2 and part[0] == "[":
            flags = np.zeros(256, np.bool_)
            for first, last in _RANGE.findall(part[1:-1]):
                flags[ord(first) : ord(last or first) + 1] = True
            places.append(flags)
        else:
            places.extend(np.arange(256) == byte for byte in _ESCAPE.sub(r"\1", part).encode())
    ends = (AT_START if found["start"] else 0) | (AT_END if found["end"] else 0)
    return Classes(np.stack(places).view(np.uint8), ends)
