"""What `tailrace check` says of one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    result: Literal["ok", "warning", "problem"]
    what: str
    found: str
    remedy: str = ""

    def row(self) -> list[str]:
        return [self.result, self.what, self.found, self.remedy]


def ok(what: str, found: str) -> Finding:
    return Finding("ok", what, found)


def warning(what: str, found: str, remedy: str) -> Finding:
    return Finding("warning", what, found, remedy)


def problem(what: str, found: str, remedy: str) -> Finding:
    return Finding("problem", what, found, remedy)
