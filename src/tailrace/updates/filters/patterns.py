"""Regular expressions that are no more than plain text at one end, at both, or anywhere: `^tmp_`, `\\.jpg$`, `abc`.

They make up most filters, and comparing bytes is ten times faster than RE2. Everything else is left to RE2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tailrace.updates.filters.operands import Word

_PLAIN: Final = r"(?:[^\\.+*?()|\[\]{}^$]|\\[\\.+*?()|\[\]{}^$/\-])"
_LITERAL = re.compile(rf"(?P<start>\^?)(?P<plain>{_PLAIN}*)(?P<end>\$?)\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The plain text, and whether it has to stand at the value's start and end."""

    word: Word
    at_start: bool
    at_end: bool


class Pattern:
    """A regular expression to be found, and the plain text that it stands for if it is that simple."""

    __slots__ = ("literal", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.literal = literal_of(text)


def literal_of(pattern: str) -> Literal | None:
    found = _LITERAL.match(pattern)
    if not found:
        return None
    plain = _ESCAPE.sub(r"\1", found["plain"])
    return Literal(Word(plain), bool(found["start"]), bool(found["end"]))
