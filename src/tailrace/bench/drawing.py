"""Plots as SVG text: axes with round ticks, one polyline per line, a legend. No library; a browser shows the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from tailrace.bench.results import Plot

WIDTH: Final = 640
HEIGHT: Final = 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS: Final = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")
TICKS: Final = 5


def svg(plot: Plot) -> str:
    """The plot as one SVG document."""
    points = [point for line in plot.lines.values() for point in line]
    assert points, f"{plot.title} has no points"
    xs = [x for x, _ in points if x > 0 or not plot.log_x]
    across = _LogAxis(min(xs), max(xs)) if plot.log_x else _Axis(0.0, max(xs))
    up = _Axis(0.0, max(y for _, y in points))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(plot.title)}</text>',
        *_grid(across, up),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 12}" text-anchor="middle">{escape(plot.x)}</text>',
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2:g}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2:g})">{escape(plot.y)}</text>',
    ]
    for number, (name, line) in enumerate(plot.lines.items()):
        parts += _line(name, line, number, across, up)
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """From `low` to a round number at or above `high`."""

    def __init__(self, low: float, high: float) -> None:
        step = round_step((high - low) / TICKS)
        count = max(1, math.ceil((high - low) / step - 1e-9))
        self.ticks = [low + step * number for number in range(count + 1)]
        self._low, self._high = self.ticks[0], self.ticks[-1]

    def share(self, value: float) -> float:
        return (value - self._low) / (self._high - self._low)


class _LogAxis:
    """Whole powers of ten around the values."""

    def __init__(self, low: float, high: float) -> None:
        self._first = math.floor(math.log10(low))
        self._last = max(self._first + 1, math.ceil(math.log10(high)))
        self.ticks = [10.0**power for power in range(self._first, self._last + 1)]

    def share(self, value: float) -> float:
        power = math.log10(max(value, self.ticks[0]))
        return (power - self._first) / (self._last - self._first)


def round_step(step: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not below `step`."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _x(axis: _Axis | _LogAxis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: _Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def _grid(across: _Axis | _LogAxis, up: _Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in across.ticks:
        x = _x(across, tick)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks:
        y = _y(up, tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    return parts


def _line(
    name: str, line: Sequence[tuple[float, float]], number: int, across: _Axis | _LogAxis, up: _Axis
) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(_x(across, x), _y(up, y)) for x, y in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places if len(places) <= 30]
    at = HEIGHT - BOTTOM - 12 - 18 * number
    legend = f'<text x="{WIDTH - RIGHT - 8}" y="{at}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, legend]
