"""What a key may be compared with, and in which one form it is kept: filters that mean the same become equal.

A numeric column is compared with whole numbers (`05` is kept as `5`), `committed_at` with times (kept in UTC with six
digits), everything else with text as it stands.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.updates.filters.numbers import MAX_NUMBER_BYTES, parsed_number
from tailrace.updates.filters.syntax import NUMBER_COLUMNS, TIME_COLUMN, Key
from tailrace.updates.instants import instant_text, parsed_instant, seconds_of

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}\Z")
_ONE_TEXT = pa.array([""], pa.string())


def value_of(key: Key, text: str) -> tuple[str, str | None]:
    """The value in its kept form, and what is wrong with it."""
    if key.is_column and key.name in NUMBER_COLUMNS:
        if not _WHOLE.match(text):
            return text, f"{key.name} is compared with whole numbers"
        return str(int(text)), None
    if key.is_column and key.name == TIME_COLUMN:
        moment = parsed_instant(text)
        if moment is None:
            return text, f"{key.name} is compared with a time such as '2026-11-18T21:40:08Z'"
        return instant_text(moment), None
    return text, None


def bound_of(key: Key, text: str) -> tuple[Decimal, str | None]:
    """The end of an interval as an exact number, and what is wrong with it."""
    number = parsed_number(text.encode())
    if number is not None:
        far = parsed_number(str(number).encode()) is None
        return number, "the number is too long or too far from zero" if far else None
    if key.is_column and key.name == TIME_COLUMN:
        moment = parsed_instant(text)
        if moment is not None:
            return seconds_of(moment), None
        return Decimal(), "no time, such as '2026-11-18T21:40:08Z', and no number of seconds since 1970"
    limit = f" (of at most {MAX_NUMBER_BYTES} bytes)" if len(text) > MAX_NUMBER_BYTES else ""
    return Decimal(), f"an interval ends at decimal numbers{limit}"


def pattern_problem(pattern: str) -> str | None:
    """Why RE2 does not accept the expression."""
    try:
        pc.match_substring_regex(_ONE_TEXT, pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        return f"no RE2 expression: {reason}"
    return None
