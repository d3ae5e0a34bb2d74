"""What basic filters compare with, made ready once per filter rather than once per batch."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

import numpy as np

from tailrace.updates.filters import tags
from tailrace.updates.filters.number_scan import SHORT_DIGITS, SHORT_EXPONENT
from tailrace.updates.instants import microseconds_of, parsed_instant

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")


class Word:
    """One value to be equal to."""

    __slots__ = ("bytes", "instant_us", "is_long", "number", "tag")

    def __init__(self, text: str) -> None:
        words = WordSet((text,))
        self.bytes = words.bytes
        self.tag = words.tags[0]
        self.is_long = words.any_long
        self.number = whole_number(text)
        self.instant_us = _instant(text)


class WordSet:
    """Some values, one of which is to be equal: a hash table over their tags, and the numbers and times among them."""

    __slots__ = ("any_long", "bytes", "instants_us", "numbers", "offsets", "table", "tags")

    def __init__(self, texts: tuple[str, ...]) -> None:
        encoded = [text.encode() for text in texts]
        self.bytes = np.frombuffer(b"".join(encoded), np.uint8)
        self.offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        places = np.arange(len(texts), dtype=np.int32)
        self.tags = tags.tags_of(places, self.offsets, self.bytes, np.zeros(0, np.bool_))
        self.table = tags.table_of(self.tags, power_of_two_over(2 * len(texts)))
        self.any_long = any(len(word) > tags.MAX_EXACT_BYTES for word in encoded)
        self.numbers = [number for text in texts if (number := whole_number(text)) is not None]
        self.instants_us = [instant for text in texts if (instant := _instant(text)) is not None]


class Interval:
    """From `low` to `high`, both within. Whole-number columns compare with whole bounds, text with floats first."""

    __slots__ = ("high", "high_float", "is_long", "low", "low_float")

    def __init__(self, low: Decimal, high: Decimal) -> None:
        self.low, self.high = low, high
        self.low_float, self.high_float = float(low), float(high)
        self.is_long = not (_is_short(low) and _is_short(high))

    def whole(self, scale: int = 0) -> tuple[int, int]:
        """The whole numbers within, both bounds multiplied by ten to the `scale` first: (1, 0) if there are none."""
        low = _ceiling(_clamped(self.low, scale))
        high = _floor(_clamped(self.high, scale))
        return (low, high) if low <= high else (1, 0)


def whole_number(text: str) -> int | None:
    """The int64 that is written like this, and in no other way: a column of numbers reads as such text."""
    if not _WHOLE.match(text) or text == "-0":
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def power_of_two_over(number: int) -> int:
    return 1 << max(2, number.bit_length())


def _instant(text: str) -> int | None:
    moment = parsed_instant(text) if len(text) == len("2026-11-18T21:40:08.000000Z") else None
    return None if moment is None else microseconds_of(moment)


def _is_short(number: Decimal) -> bool:
    _, digits, exponent = number.as_tuple()
    return len(digits) <= SHORT_DIGITS and abs(int(exponent)) <= SHORT_EXPONENT


def _clamped(number: Decimal, scale: int) -> Decimal:
    """The scaled number, or one just outside int64 where it lies further out."""
    reach = Decimal(2**64)
    if number.copy_abs() > reach:
        return reach.copy_sign(number)
    sign, digits, exponent = number.as_tuple()
    return Decimal((sign, digits, int(exponent) + scale))


def _ceiling(number: Decimal) -> int:
    return min(max(math.ceil(number), INT64_MIN), INT64_MAX + 1)


def _floor(number: Decimal) -> int:
    return max(min(math.floor(number), INT64_MAX), INT64_MIN - 1)
