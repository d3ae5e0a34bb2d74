"""`tailrace torture`: shows a run while it goes on, and what it found."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom
from threading import Event

import msgspec
import typer

from tailrace.cli.output import note, on_terminal, say, say_json, show_table
from tailrace.cli.progress import Tell, progress_shown
from tailrace.runtime.tasks import drain_on_signals
from tailrace.testing.torture.report import TortureReport
from tailrace.testing.torture.run import Progress, TortureOptions, run_torture


def run(seconds: float, seed: int | None, *, as_json: bool, folder: Path | None) -> None:
    """A signal ends the breaking early; healing and checking follow all the same."""
    if seed is None:
        seed = SystemRandom().randrange(2**31)
    note(f"seed {seed}")
    options = TortureOptions(seconds=seconds, seed=seed, folder=folder)
    stop = Event()
    with drain_on_signals(stop), progress_shown() as tell:
        report = run_torture(options, lambda progress: _tell(tell, progress, seconds), stop)
    if as_json:
        if on_terminal():
            _show(report)
        say_json(msgspec.to_builtins(report))
    else:
        _show(report)
    for problem in report.problems:
        note(f"error: {problem}")
    raise typer.Exit(report.exit_code)


def _tell(tell: Tell, progress: Progress, seconds: float) -> None:
    fault = f", now: {progress.fault}" if progress.fault else ""
    what = (
        f"{progress.phase}: {progress.written:,} written, {progress.delivered:,} delivered, "
        f"{sum(progress.faults.values())} faults{fault}"
    )
    tell(what, min(1.0, progress.elapsed_s / seconds))


def _show(report: TortureReport) -> None:
    numbers = (
        "written", "updates_s", "lost", "out_of_order", "after_handover", "corrupt", "duplicates", "loss_notices",
        "kills",
    )  # fmt: skip
    rows = [(name, f"{getattr(report, name):.0f}") for name in numbers]
    rows += [(f"fault {kind}", str(count)) for kind, count in sorted(report.faults.items())]
    rows += [(f"delivered to {name}", str(count)) for name, count in sorted(report.delivered.items())]
    show_table(f"torture, {report.seconds:.0f} s, seed {report.seed}", ("what", "count"), rows)
    say("passed" if report.passed else "FAILED")
