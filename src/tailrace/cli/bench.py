"""`tailrace bench`: runs a bench from the registry and shows its figures beside the paper's and its peers'."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tailrace.bench.recording import record
from tailrace.bench.registry import BENCHES, Bench
from tailrace.bench.results import BenchOptions, BenchResult, Plot, rounded
from tailrace.cli.output import note, on_terminal, say, say_json, show_table
from tailrace.cli.progress import progress_shown
from tailrace.errors import NotFound

PLOT_WIDTH: Final = 40


def list_benches() -> None:
    show_table("benches", ("name", "what it measures"), [(bench.name, bench.description) for bench in BENCHES.values()])


def run_bench(name: str, *, as_json: bool, quick: bool, folder: Path | None = None) -> None:
    bench = _found(name)
    with progress_shown() as tell:
        result = bench.run(BenchOptions(quick=quick), tell)
    if folder is not None:
        note(f"recorded: {', '.join(str(path) for path in record(result, folder, quick=quick))}")
    if not as_json or on_terminal():
        _show(bench, result)
    if as_json:
        say_json(result.as_json())


def _found(name: str) -> Bench:
    found = BENCHES.get(name)
    if found is None:
        raise NotFound(what="bench", name=name, remedy=f"there are: {', '.join(BENCHES)}")
    return found


def _show(bench: Bench, result: BenchResult) -> None:
    rows = [(group, name, value) for group, names in _groups(result).items() for name, value in names.items()]
    show_table(f"{bench.name}: {bench.description}", ("", "figure", "value"), [(g, n, _text(v)) for g, n, v in rows])
    for plot in result.plots if on_terminal() else ():
        _draw(plot)
    for remark in result.notes:
        say(remark)


def _groups(result: BenchResult) -> dict[str, Mapping[str, float | str]]:
    return {"here": result.figures, "paper": result.paper, "peers": result.peers}


def _text(value: Any) -> str:
    return f"{rounded(value):,}" if isinstance(value, int | float) else str(value)


def _draw(plot: Plot) -> None:
    """Each line as bars, one for each point: enough to see a shape."""
    say(f"\n{plot.title} ({plot.y} over {plot.x})")
    most = max((y for points in plot.lines.values() for _, y in points), default=0.0) or 1.0
    for name, points in plot.lines.items():
        say(f"  {name}")
        for x, y in points:
            say(f"  {rounded(x):>10,}  {'█' * max(1, round(PLOT_WIDTH * y / most)):<{PLOT_WIDTH}}  {rounded(y):,}")
