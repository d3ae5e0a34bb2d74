"""A bar on a terminal, a line now and then in a pipe: how commands that take a while show that they live.

Everything goes to stderr, so that stdout holds results alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.cli.output import note

Tell = Callable[[str, float], None]  # (what happens now, how much is done, 0 to 1)

PLAIN_EVERY_S: Final = 5.0


@contextmanager
def progress_shown() -> Iterator[Tell]:
    if sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda what, done: progress.update(task, description=what, completed=done)


def _lines() -> Tell:
    told_at, last = float("-inf"), ""

    def tell(what: str, done: float) -> None:
        nonlocal told_at, last
        now = time.monotonic()
        if what != last and now - told_at >= PLAIN_EVERY_S:
            told_at, last = now, what
            note(f"{100 * done:3.0f} %  {what}")

    return tell
