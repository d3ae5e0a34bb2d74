"""Which text is a number, for `BETWEEN`: decimal digits with an optional sign, fraction and exponent, nothing else.

No blanks, no infinity, no NaN, no hexadecimal. The exponent has at most six digits and the text at most 400 bytes, so
that a hostile value costs no more than a friendly one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

MAX_NUMBER_BYTES: Final = 400
MAX_EXPONENT_DIGITS: Final = 6
NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?"
_NUMBER = re.compile(NUMBER.encode() + rb"\Z")


def parsed_number(text: bytes) -> Decimal | None:
    """The exact value, or None where the text is no number."""
    if len(text) > MAX_NUMBER_BYTES or not _NUMBER.match(text):
        return None
    return Decimal(text.decode())
