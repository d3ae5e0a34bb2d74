"""`tailrace put`: one write from the command line, or many from JSON lines on standard input."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from tailrace.cli.output import note, say
from tailrace.cli.reach import Reach, ReachOptions, reach, the_dataset
from tailrace.cli.reaching import wait_until_reached
from tailrace.errors import ConfigInvalid, TailraceError, UpdateInvalid
from tailrace.store.operations import WriteResult, delete, put
from tailrace.updates.position import LinePosition

if TYPE_CHECKING:
    from tailrace.store.client import StoreClient
    from tailrace.wire.store_messages import Operation

MAX_UNANSWERED: Final = 5_000
MAX_LINE_BYTES: Final = 64 << 20
_A_LINE: Final = 'a line reads {"key": "a", "pairs": {"name": "Alice"}} or {"key": "a", "delete": true}'


@dataclass(frozen=True, slots=True)
class PutOptions:
    table: str
    key: str | None
    pairs: tuple[str, ...]
    delete: bool
    wait_for: str | None
    timeout_s: float
    dataset: str | None


def put_one(options: PutOptions, where: ReachOptions) -> None:
    assert options.key is not None
    operation = _operation(options)
    found = reach(where)
    dataset = _dataset(found, options.dataset)
    with found.store_client(dataset) as client:
        line = client.describe().line
        written = client.write([operation]).result()
    say(str(LinePosition(line, written.position)))
    if options.wait_for:
        wait_until_reached(found, dataset, options.wait_for, written.position, options.timeout_s)


def _operation(options: PutOptions) -> Operation:
    assert options.key is not None
    if options.delete:
        if options.pairs:
            raise ConfigInvalid(path="--delete", reason="a delete carries no values")
        return delete(options.table, _as_typed(options.key))
    if not options.pairs:
        raise ConfigInvalid(path="put", reason="nothing to write; give values as name=value, or --delete")
    return put(options.table, _as_typed(options.key), dict(_pair(text) for text in options.pairs))


def _pair(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigInvalid(path="put", reason=f"{text!r} is not of the form name=value")
    return name, _as_typed(value)


def _as_typed(argument: str) -> bytes:
    """Keys and values are bytes; those that are no text stand as surrogates in an argument."""
    return argument.encode("utf-8", "surrogateescape")


def _dataset(found: Reach, name: str | None) -> str:
    if name is not None:
        return name
    if found.configuration.store is not None:
        return found.configuration.store.dataset
    with found.publisher() as publisher:
        return the_dataset(publisher, None).name


# ---- many -----------------------------------------------------------------------------------------------------------


def put_lines(options: PutOptions, where: ReachOptions) -> None:
    """Every line is one write; an error stops it and names the line, and all lines before it are written.

    The store judges while later lines are on their way: where it refuses one, some of those may be written too.
    """
    if options.pairs or options.delete:
        raise ConfigInvalid(path="put", reason="the key is missing")
    if sys.stdin.isatty():
        note(f"reading lines of JSON; {_A_LINE}. Ctrl-D ends it")
    found = reach(where)
    dataset = _dataset(found, options.dataset)
    answered = Answered()
    with found.store_client(dataset) as client, _progress() as advance:
        line_name = client.describe().line
        try:
            _write_all(client, operations(sys.stdin.buffer, options.table), answered, advance)
        except TailraceError as error:
            error.add_note(f"{answered.count} written, through line {answered.line}; what follows it may be sent again")
            raise
    note(f"{answered.count} written")
    if answered.last is not None:
        say(str(LinePosition(line_name, answered.last.position)))
        if options.wait_for:
            wait_until_reached(found, dataset, options.wait_for, answered.last.position, options.timeout_s)


@dataclass(slots=True)
class Answered:
    """How many writes the store has answered, and the last of them."""

    count: int = 0
    line: int = 0
    last: WriteResult | None = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One write as JSON. Values stay raw: a number keeps all of its digits."""

    key: str
    table: str | msgspec.UnsetType = msgspec.UNSET
    pairs: dict[str, msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    delete: bool = False


_decode_line: Final = msgspec.json.Decoder(_Line).decode


def operations(lines: BinaryIO, table: str) -> Iterator[tuple[int, Operation]]:
    """The writes in JSON lines, each with its line number; "table" in a line stands for another table."""
    for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE_BYTES), b""), 1):
        if line.strip():
            try:
                operation = _written(_decode_line(line), table)
            except UpdateInvalid as error:
                raise UpdateInvalid(reason=f"line {number}: {error.reason}") from error
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise UpdateInvalid(reason=f"line {number}: {error}; {_A_LINE}") from error
            yield number, operation


def _written(line: _Line, table: str) -> Operation:
    into, key = table if line.table is msgspec.UNSET else line.table, line.key.encode()
    if line.delete:
        if line.pairs is not msgspec.UNSET:
            raise UpdateInvalid(reason='a delete carries no values; leave out "pairs" or "delete"')
        return delete(into, key)
    if line.pairs is msgspec.UNSET:
        raise UpdateInvalid(reason='it needs "pairs" with the values, or "delete": true')
    return put(into, key, {name: _text(bytes(value)) for name, value in line.pairs.items()})


def _text(value: bytes) -> str | None:
    """Text and null are what they are; all else stays JSON as it was typed, in the usual spacing."""
    if value.startswith((b'"', b"null")):
        return msgspec.json.decode(value, type=str | None)
    return msgspec.json.format(value, indent=0).decode()


def _write_all(
    client: StoreClient, writes: Iterator[tuple[int, Operation]], answered: Answered, advance: Callable[[], None]
) -> None:
    unanswered: deque[tuple[int, Future[WriteResult]]] = deque()
    try:
        for number, operation in writes:
            unanswered.append((number, client.write([operation])))
            while len(unanswered) > MAX_UNANSWERED or (unanswered and unanswered[0][1].done()):
                _take_answer(unanswered, answered)
                advance()
    finally:
        while unanswered:
            _take_answer(unanswered, answered)
            advance()


def _take_answer(unanswered: deque[tuple[int, Future[WriteResult]]], answered: Answered) -> None:
    """Waits for the oldest answer. If it is an error, that is the one to tell of: nobody waits for later ones."""
    number, future = unanswered.popleft()
    try:
        answered.last = future.result()
        answered.count += 1
        answered.line = number
    except TailraceError as error:
        error.add_note(f"line {number} of the input")
        unanswered.clear()
        raise


@contextmanager
def _progress() -> Iterator[Callable[[], None]]:
    """A counter on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} written"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("written", total=None)
        yield lambda: progress.advance(task)
