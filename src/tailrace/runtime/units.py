"""Durations and sizes as people write them: "30s", "1h30m", "-5m", "8MiB", "1GB".

`Duration` is a float of seconds, `Size` an int of bytes; both print as they can be written.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_DURATION_UNITS_S: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SIZE_UNITS: Final = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|[dhms])")
DURATION_PATTERN: Final = rf"^-?({_DURATION_PART.pattern})+$"
SIZE_PATTERN: Final = r"^\d+(\.\d+)?\s?([kKMGT]B|[KMGT]iB|B)$"


class Duration(float):
    """Seconds; written as numbers with units, largest first: 1d, 2h30m, 30s, 250ms. May be negative: -5m."""

    @classmethod
    def parse(cls, text: str) -> Duration:
        negative = text.startswith("-")
        left = text.removeprefix("-")
        if not re.fullmatch(DURATION_PATTERN, text):
            raise ValueError(f"{text!r} is no duration; write it like 250ms, 30s, 5m, 1h30m or 7d")
        total_s = sum(float(number) * _DURATION_UNITS_S[unit] for number, unit in _DURATION_PART.findall(left))
        return cls(-total_s if negative else total_s)

    def __str__(self) -> str:
        left_us = round(abs(self) * 1e6)
        shown = ""
        for unit, unit_s in _DURATION_UNITS_S.items():
            number, left_us = divmod(left_us, round(unit_s * 1e6))
            shown += f"{number}{unit}" if number else ""
        return ("-" if self < 0 else "") + shown if shown else "0s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class Size(int):
    """Bytes; written with a decimal (kB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB) unit."""

    @classmethod
    def parse(cls, text: str) -> Size:
        if not re.fullmatch(SIZE_PATTERN, text):
            raise ValueError(f"{text!r} is no size; write it like 512KiB, 8MiB or 1GB")
        number = text.rstrip("kKMGTiB ")
        return cls(round(Decimal(number) * _SIZE_UNITS[text[len(number) :].strip()]))

    def __str__(self) -> str:
        for unit in ("TiB", "GiB", "MiB", "KiB", "TB", "GB", "MB", "kB"):
            if self and self % _SIZE_UNITS[unit] == 0:
                return f"{self // _SIZE_UNITS[unit]}{unit}"
        return f"{int(self)}B"

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"
