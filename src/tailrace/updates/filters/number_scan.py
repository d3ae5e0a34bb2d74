"""Reads the numbers in a column of text, once per batch and key, exactly enough to compare them with any bound.

Every number becomes the nearest float, and rounding keeps order: where the floats of a value and a bound differ, so do
the numbers, the same way. Where the floats are equal, two numbers of at most 15 digits are equal too. What is left
(equal floats, and more digits on either side) is compared exactly by whoever asks, one value at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tailrace.updates.filters.tags import LONG as LONG_TAG
from tailrace.updates.filters.tags import NO_VALUE, Tags
from tailrace.updates.kernels import Bytes, Int32s, Int64s, Number, inlined, kernel, load_u64, trailing_zeros

Floats = npt.NDArray[np.float64]
Kinds = npt.NDArray[np.uint8]

NO_NUMBER, SHORT, LONG, UNREAD = 0, 1, 2, 3  # UNREAD: its float is for Python to find; then it is LONG
SHORT_DIGITS = 15
SHORT_EXPONENT = 22  # powers of ten up to here are floats without rounding
_ONES = np.uint64(0x0101010101010101)
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_POINTS = np.uint64(0x2E2E2E2E2E2E2E2E)
_HIGH_BITS = np.uint64(0x8080808080808080)
_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)
_EVERY_FOURTH = np.uint64(0x000000FF000000FF)
_POWERS = np.array([10.0**power for power in range(SHORT_EXPONENT + 1)])


@kernel
def read_numbers(
    tags: Tags, places: Int32s, offsets: Int32s, data: Bytes, floats: Floats, kinds: Kinds, max_bytes: int
) -> int:
    """Fills `floats` (NaN where there is no number) and `kinds`; returns how many are UNREAD."""
    unread = 0
    for row in range(len(tags)):
        floats[row] = np.nan
        kinds[row] = NO_NUMBER
        tag = tags[row]
        if tag == NO_VALUE:
            continue
        if tag < LONG_TAG:
            number = _short(tag)
            if number >= 0:
                floats[row] = number
                kinds[row] = SHORT
                continue
        place = np.int64(places[row])
        start, end = np.int64(offsets[place]), np.int64(offsets[place + 1])
        if end - start > max_bytes:
            continue
        number, kind = _read(data, start, end)
        floats[row] = number
        kinds[row] = kind
        unread += kind == UNREAD
    return unread


@inlined
def _short(tag: Number) -> Number:
    """The number in a tag, digits with at most one point, read all at once; -1 for what is written otherwise."""
    size = tag >> np.uint64(56)
    word = tag & np.uint64((1 << 56) - 1)
    fraction = np.uint64(0)
    points = word ^ _POINTS
    points = (points - _ONES) & ~points & _HIGH_BITS
    if points:  # the lowest set bit is in the first point's byte
        at = trailing_zeros(points) >> np.uint64(3)
        before = (np.uint64(1) << (at * np.uint64(8))) - np.uint64(1)
        word = (word & before) | ((word >> np.uint64(8)) & ~before)
        size -= np.uint64(1)
        fraction = size - at
    if size == 0:
        return -1.0
    missing = np.uint64(8) * (np.uint64(8) - size)
    word = (word << missing) | (_ZEROS & ((np.uint64(1) << missing) - np.uint64(1)))
    if not _all_digits(word):
        return -1.0
    number = np.float64(_eight_digits(word))
    return number / _POWERS[np.int64(fraction)] if fraction else number


@inlined
def _all_digits(word: Number) -> Number:
    return (word & _HIGH_NIBBLES) == _ZEROS and ((word + _SIXES) & _HIGH_NIBBLES) == _ZEROS


@inlined
def _eight_digits(word: Number) -> Number:
    """The number of eight digits, the first one in the lowest byte."""
    word -= _ZEROS
    word = word * np.uint64(10) + (word >> np.uint64(8))
    low = (word & _EVERY_FOURTH) * np.uint64(0x000F424000000064)
    high = ((word >> np.uint64(16)) & _EVERY_FOURTH) * np.uint64(0x0000271000000001)
    return (low + high) >> np.uint64(32)


@inlined
def _is_digit(data: Bytes, at: Number, end: Number) -> Number:
    return at < end and 48 <= data[at] <= 57


@kernel
def _read(data: Bytes, at: Number, end: Number) -> tuple[Number, int]:
    negative = at < end and data[at] == 45
    if at < end and (data[at] == 45 or data[at] == 43):
        at += 1
    mantissa, significant, any_digits = np.uint64(0), 0, False
    while at + 8 <= end and significant <= 8 and _all_digits(load_u64(data, at)):
        mantissa = mantissa * np.uint64(100_000_000) + _eight_digits(load_u64(data, at))
        significant += 8  # leading zeros count here, which costs no more than an exact comparison
        any_digits = True
        at += 8
    while _is_digit(data, at, end):
        mantissa, significant = _appended(mantissa, significant, data[at])
        any_digits = True
        at += 1
    exponent = np.int64(0)
    if at < end and data[at] == 46:
        at += 1
        while _is_digit(data, at, end):
            mantissa, significant = _appended(mantissa, significant, data[at])
            any_digits = True
            exponent -= 1
            at += 1
    if any_digits and at < end and (data[at] == 101 or data[at] == 69):
        written, at = _exponent(data, at + 1, end)
        exponent += written
    if not any_digits or at != end:
        return np.nan, NO_NUMBER
    if significant > 19:
        return np.nan, UNREAD
    return _rounded(mantissa, significant, exponent, negative)


@inlined
def _appended(mantissa: Number, significant: Number, digit: Number) -> tuple[Number, Number]:
    if significant == 0 and digit == 48:
        return mantissa, 0
    if significant < 19:
        mantissa = mantissa * np.uint64(10) + np.uint64(digit - 48)
    return mantissa, significant + 1


@inlined
def _exponent(data: Bytes, at: Number, end: Number) -> tuple[Number, Number]:
    """The exponent and where it ends; -1 where there are no digits, or more than six."""
    negative = at < end and data[at] == 45
    if at < end and (data[at] == 45 or data[at] == 43):
        at += 1
    first = at
    written = np.int64(0)
    while _is_digit(data, at, end) and at - first < 7:
        written = written * 10 + (np.int64(data[at]) - 48)
        at += 1
    if at == first or at - first > 6:
        return np.int64(0), np.int64(-1)
    return -written if negative else written, at


@inlined
def _rounded(mantissa: Number, significant: Number, exponent: Number, negative: Number) -> tuple[Number, int]:
    sign = -1.0 if negative else 1.0
    if mantissa == 0:
        return 0.0, SHORT
    if significant <= SHORT_DIGITS and -SHORT_EXPONENT <= exponent <= SHORT_EXPONENT:
        whole = np.float64(mantissa)
        return sign * (whole * _POWERS[exponent] if exponent >= 0 else whole / _POWERS[-exponent]), SHORT
    if exponent == 0:
        return sign * np.float64(mantissa), LONG
    return np.nan, UNREAD


@kernel
def rows_at(floats: Floats, kinds: Kinds, low: float, high: float, all_long: bool) -> Int64s:
    """The rows whose float is one of the bounds', where only an exact comparison can tell."""
    rows = np.empty(len(floats), np.int64)
    found = 0
    for row in range(len(floats)):
        if (floats[row] == low or floats[row] == high) and (all_long or kinds[row] == LONG):
            rows[found] = row
            found += 1
    return rows[:found]
