"""Commands that try Tailrace out: `bench`, `torture` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.options import Json


def bench(
    name: Annotated[str | None, typer.Argument(help="Which one; left out: what there is.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The last line is one JSON object with the figures.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, in under 50 s, with the same figures.")] = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the result there: NAME.json and its plots as SVG.")
    ] = None,
) -> None:
    """Measure again what the papers measured, beside the bare transport.

    \b
    tailrace bench
    tailrace bench decode --quick
    tailrace bench latency --record results/
    tailrace bench fanout --json | tail -n 1 | jq .figures
    """
    from tailrace.cli.bench import list_benches, run_bench

    if name is None:
        list_benches()
    else:
        run_bench(name, as_json=as_json, quick=quick, folder=record)


def torture(
    seconds: Annotated[float, typer.Option(min=1, help="How long to write and to break things.")] = 60.0,
    seed: Annotated[int | None, typer.Option(help="The same seed breaks the same things in the same order.")] = None,
    as_json: Json = False,
    folder: Annotated[Path | None, typer.Option(help="Keep data and logs there.")] = None,
) -> None:
    """Write numbered updates, kill and cut everything at random, and check that nothing was lost.

    Exit code 1 unless nothing was lost, out of order, corrupt or delivered by a session that was over, and every
    kind of fault occurred.

    \b
    tailrace torture
    tailrace torture --seconds 300 --seed 7 --json
    """
    from tailrace.cli.torture import run

    run(seconds, seed, as_json=as_json, folder=folder)


def demo(
    seconds: Annotated[float | None, typer.Option(min=1, help="End after so long; else with Ctrl-C.")] = None,
    rate: Annotated[float, typer.Option(min=1, max=20_000, help="Writes per second.")] = 500.0,
) -> None:
    """A store with a steady writer, its publisher, three applications, and the live table of who is where.

    \b
    tailrace demo
    tailrace demo --seconds 20
    """
    from tailrace.cli.demo import run_demo

    run_demo(seconds, rate)
