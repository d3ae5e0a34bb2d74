"""`tailrace put`: one write from the command line, or many from JSON lines on standard input."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from tailrace.cli.output import note, say
from tailrace.cli.reach import Reach, ReachOptions, reach, the_dataset
from tailrace.cli.reaching import wait_until_reached
from tailrace.errors import ConfigInvalid, ProtocolMismatch, UpdateInvalid
from tailrace.store.operations import WriteResult, delete, put
from tailrace.updates.position import LinePosition

if TYPE_CHECKING:
    from tailrace.store.client import StoreClient
    from tailrace.wire.store_messages import Operation

MAX_UNANSWERED: Final = 5_000
MAX_LINE_CHARS: Final = 64 << 20
_LINE_KEYS: Final = {"table", "key", "pairs", "delete"}


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
        line = _line(client)
        written = client.write([operation]).result()
    say(str(LinePosition(line, written.position)))
    if options.wait_for:
        wait_until_reached(found, dataset, options.wait_for, written.position, options.timeout_s)


def _operation(options: PutOptions) -> Operation:
    assert options.key is not None
    if options.delete:
        if options.pairs:
            raise ConfigInvalid(path="--delete", reason="a delete carries no values")
        return delete(options.table, options.key.encode())
    if not options.pairs:
        raise ConfigInvalid(path="put", reason="nothing to write; give values as name=value, or --delete")
    return put(options.table, options.key.encode(), dict(_pair(text) for text in options.pairs))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigInvalid(path="put", reason=f"{text!r} is not of the form name=value")
    return name, value


def _dataset(found: Reach, name: str | None) -> str:
    if name is not None:
        return name
    if found.configuration.store is not None:
        return found.configuration.store.dataset
    with found.publisher() as publisher:
        return the_dataset(publisher, None).name


def _line(client: StoreClient) -> str:
    try:
        return client.describe().line
    except ProtocolMismatch as error:
        error.add_note("a node without a [store] takes no writes: write to the dataset's own database, or name --store")
        raise


# ---- many -----------------------------------------------------------------------------------------------------------


def put_lines(options: PutOptions, where: ReachOptions) -> None:
    """Every line is one write; an error stops it and names the line, and all lines before it are written."""
    if options.pairs or options.delete:
        raise ConfigInvalid(path="put", reason="the key is missing")
    found = reach(where)
    dataset = _dataset(found, options.dataset)
    with found.store_client(dataset) as client, _progress() as advance:
        line_name = _line(client)
        count, last = _write_all(client, operations(sys.stdin, options.table), advance)
    note(f"{count} written")
    if last is not None:
        say(str(LinePosition(line_name, last.position)))
        if options.wait_for:
            wait_until_reached(found, dataset, options.wait_for, last.position, options.timeout_s)


def operations(lines: TextIO, table: str) -> Iterator[Operation]:
    """The writes in JSON lines: {"key": "a", "pairs": {...}} or {"key": "a", "delete": true}; "table" if another."""
    for number, line in enumerate(iter(lambda: lines.readline(MAX_LINE_CHARS), ""), 1):
        if line.strip():
            try:
                yield _parsed(json.loads(line), table)
            except (ValueError, TypeError) as error:
                raise UpdateInvalid(reason=f"line {number}: {error}") from error


def _parsed(written: Any, table: str) -> Operation:
    if not isinstance(written, dict) or not isinstance(written.get("key"), str):
        raise ValueError('it needs a "key", as in {"key": "alice", "pairs": {"name": "Alice"}}')
    unknown = written.keys() - _LINE_KEYS
    if unknown:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(sorted(_LINE_KEYS))}")
    into, key = written.get("table", table), written["key"].encode()
    if written.get("delete"):
        return delete(into, key)
    pairs = written.get("pairs")
    if not isinstance(pairs, dict):
        raise ValueError('it needs "pairs" with the values, or "delete": true')
    return put(into, key, {name: _text(value) for name, value in pairs.items()})


def _text(value: Any) -> str | None:
    """A value in the canonical form of JSON; text and null are what they are."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_all(
    client: StoreClient, writes: Iterator[Operation], advance: Callable[[], None]
) -> tuple[int, WriteResult | None]:
    unanswered: deque[Future[WriteResult]] = deque()
    count = 0
    last: WriteResult | None = None
    try:
        for operation in writes:
            unanswered.append(client.write([operation]))
            while len(unanswered) > MAX_UNANSWERED or (unanswered and unanswered[0].done()):
                last = unanswered.popleft().result()
                count += 1
                advance()
    finally:
        while unanswered:
            last = unanswered.popleft().result()
            count += 1
            advance()
    return count, last


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
