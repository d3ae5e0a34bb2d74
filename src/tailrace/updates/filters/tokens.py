"""A filter's text cut into tokens, each with its place, and the errors that point at a place."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from tailrace.errors import FilterInvalid
from tailrace.updates.filters.numbers import NUMBER
from tailrace.updates.filters.syntax import KEYWORDS, NAME

MAX_TEXT_CHARS: Final = 65_536
SHOWN_CHARS: Final = 160  # an error shows so much of a long filter around the place
_TOKEN = re.compile(
    rf"""(?P<blank>\s+)
    |(?P<number>{NUMBER}(?![\w.]))
    |(?P<name>{NAME})
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<symbol>!=|<>|[()=,\[\]])""",
    re.VERBOSE,
)
_HINTS = {
    "'": "this text has no closing quote",
    '"': "this name has no closing quote",
    "<": "there is no '<': write BETWEEN a AND b for a numeric interval",
    ">": "there is no '>': write BETWEEN a AND b for a numeric interval",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or != between a key and a value",
}


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is name, quoted, text, number, symbol, keyword or end; `value` is without quotes, keywords in capitals."""

    kind: str
    value: str
    at: int
    shown: str


def tokens_of(text: str) -> list[Token]:
    _check(text)
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            raise invalid(text, at, _hint(text, at))
        if found.lastgroup != "blank":
            tokens.append(_token(found.lastgroup or "", found.group(), at))
        at = found.end()
    tokens.append(Token("end", "", len(text), "the end"))
    return tokens


def _check(text: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        raise invalid(text, MAX_TEXT_CHARS, f"a filter of {len(text)} characters; at most {MAX_TEXT_CHARS}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(text, error.start, "this character is half of a surrogate pair") from error


def _hint(text: str, at: int) -> str:
    if text[at].isdigit() or text[at] in "+-.":
        return "this is no number; text stands in single quotes"
    return _HINTS.get(text[at], f"{text[at]!r} means nothing here")


def _token(kind: str, shown: str, at: int) -> Token:
    value = shown
    if kind == "text":
        value = shown[1:-1].replace("''", "'")
    elif kind == "quoted":
        value = shown[1:-1].replace('""', '"')
    elif kind == "name" and shown.upper() in KEYWORDS:
        kind, value = "keyword", shown.upper()
    return Token(kind, value, at, shown)


def invalid(text: str, at: int, reason: str) -> FilterInvalid:
    """The error with the caret under `at`: in one line, cut around the place where the filter is long."""
    start = 0 if len(text) <= SHOWN_CHARS else max(0, at - SHOWN_CHARS // 2)
    window = text[start : start + SHOWN_CHARS]
    before = "…" if start else ""
    after = "…" if start + SHOWN_CHARS < len(text) else ""
    shown = before + "".join(character if character.isprintable() else " " for character in window) + after
    width = len(before) + sum(map(_cells, window[: at - start]))
    return FilterInvalid(text=shown, at=at, reason=reason, caret=" " * width + "^")


def _cells(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
