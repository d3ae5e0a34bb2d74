"""What commands print: tables and colour on a terminal, tab-separated lines and nothing else in a pipe.

A pipe's reader is a program: the columns stay, a header line names them, and no line is cut or wrapped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Sequence[str]


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def say(text: str) -> None:
    """One line, at once: whoever waits for it in a pipe gets it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark beside the result, on stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    say(json.dumps(value, ensure_ascii=False, default=str))


@contextmanager
def until_enough() -> Iterator[None]:
    """For what goes on until someone has seen enough: Ctrl-C, or `head` that closes the pipe, is its regular end."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere


def show_table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    if on_terminal():
        console().print(rich_table(title, columns, rows))
        return
    say("\t".join(columns))
    for row in rows:
        say("\t".join(_in_one_line(cell) for cell in row))


def rich_table(title: str, columns: Sequence[str], rows: Sequence[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[number]) for row in rows)
        last = number == len(columns) - 1
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=not last)
    for row in rows:
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    return table


_STYLES = {
    "live": "green", "ok": "green", "ready": "green",
    "catching up": "yellow", "waiting": "yellow", "warning": "yellow", "retrying": "yellow",
    "blocked": "red", "failed": "red", "problem": "red",
}  # fmt: skip


def _style(cell: str) -> str:
    return _STYLES.get(cell, "")


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or (cell[0] == "-" and cell[1:2].isdigit())


def _in_one_line(cell: str) -> str:
    return cell.replace("\t", " ").replace("\n", " ")


# ---- values as people read them -------------------------------------------------------------------------------------


def count(number: float) -> str:
    return f"{number:,.0f}" if on_terminal() else f"{number:.0f}"


def seconds(number: float | None) -> str:
    if number is None:
        return "?"
    return f"{number:.3f}" if number < 10 else f"{number:.0f}"


def size(number: float) -> str:
    """12.3 MB on a terminal, plain bytes in a pipe."""
    if not on_terminal():
        return f"{number:.0f}"
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def readable(value: bytes | None) -> str:
    """Bytes as text where they are text, else as hexadecimal with 0x before it."""
    if value is None:
        return "NULL"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)
