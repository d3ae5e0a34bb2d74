"""Regular expressions that are no more than plain text at one end, at both, or anywhere: `^tmp_`, `\\.jpg$`, `abc`.

They make up most filters, and comparing bytes is ten times faster than RE2. Everything else is left to RE2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from tailrace.updates.kernels import Bytes

_PLAIN: Final = r"(?:[^\\.+*?()|\[\]{}^$]|\\[\\.+*?()|\[\]{}^$/\-])"
_LITERAL = re.compile(rf"(?P<start>\^?)(?P<plain>{_PLAIN}*)(?P<end>\$?)\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """The plain text, and whether it has to stand at the value's start and end."""

    text: Bytes
    at_start: bool
    at_end: bool


def literal_of(pattern: str) -> Literal | None:
    found = _LITERAL.match(pattern)
    if not found:
        return None
    plain = _ESCAPE.sub(r"\1", found["plain"])
    return Literal(np.frombuffer(plain.encode(), np.uint8), bool(found["start"]), bool(found["end"]))
