"""What a bench is told and what it gives back.

Figures carry dotted names while they are gathered (`n_20.delivered_mb_s`) and nest when they are written out, where a
name that is both a figure and a group would lose one of them: that is a bug and asserted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[str, float], None]  # (what happens now, how much of the bench is done, 0 to 1)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """`folder` is where logs are written for the time of a run; a temporary one if it is None."""

    quick: bool = False
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over one pair of axes."""

    title: str
    x: str
    y: str
    lines: Mapping[str, list[tuple[float, float]]]
    log_x: bool = False


@dataclass(frozen=True, slots=True)
class BenchResult:
    """`figures` are ours, `paper` is what the paper says of the same, `peers` what was measured beside them."""

    name: str
    figures: Mapping[str, float]
    paper: Mapping[str, float | str] = field(default_factory=dict)
    peers: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "figures": nested(self.figures),
            "paper": nested(self.paper),
            "peers": nested(self.peers),
        }


def nested(figures: Mapping[str, float | str]) -> dict[str, Any]:
    """Dotted names as nested objects; numbers rounded to what was measured."""
    root: dict[str, Any] = {}
    for name, value in figures.items():
        *groups, last = name.split(".")
        place = root
        for group in groups:
            place = place.setdefault(group, {})
            assert isinstance(place, dict), f"{name} lies below another figure"
        assert last not in place, f"{name} is there twice, or a group"
        place[last] = rounded(value) if isinstance(value, int | float) else value
    return root


def rounded(value: float) -> float:
    """Five digits tell more than any run can measure; counts stay whole."""
    if isinstance(value, int) or abs(value) >= 100_000:
        return round(value)
    return float(f"{value:.5g}")
