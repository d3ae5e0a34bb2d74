"""`tailrace tail`: a dataset's updates as lines, from some place of the log on, as they are committed.

It asks the publisher for a range of the log, so that it has no marker, holds back no application, and leaves no trace.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailrace.cli.looking import ask_status
from tailrace.cli.output import note, on_terminal, readable, say_json, until_enough
from tailrace.cli.reach import ReachOptions, reach, the_dataset
from tailrace.errors import CredentialRefused, Disconnected, PositionInvalid
from tailrace.runtime.units import Duration
from tailrace.updates.batch import Update, UpdateBatch
from tailrace.updates.filters import Filter
from tailrace.updates.instants import instant_text
from tailrace.updates.position import START, LinePosition, Position
from tailrace.wire.messages import DataLoss, DatasetInfo, ReadRange, Updates, decode_down

if TYPE_CHECKING:
    from tailrace.wire.client import Connection

LATEST: Final = "latest"


@dataclass(frozen=True, slots=True)
class TailOptions:
    dataset: str
    filter: str | None
    start: str
    until: str | None
    limit: int | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Where to start and where to stop: None is the log's start, or never."""

    after: Position | None
    since_us: int | None
    until: Position | None
    follow: bool


def tail_dataset(options: TailOptions, where: ReachOptions) -> None:
    if options.filter is not None:
        Filter.parse(options.filter)  # fails here, with a caret, before anyone is asked
    dataset, where = _address_in(options.dataset, where)
    found = reach(where)
    with until_enough(), found.publisher() as publisher:
        info = the_dataset(publisher, dataset)
        _print_all(options, updates(publisher, info, options))


def _address_in(dataset: str, where: ReachOptions) -> tuple[str, ReachOptions]:
    if "://" not in dataset:
        return dataset, where
    from tailrace.wire.addresses import parse_url

    endpoint = parse_url(dataset)
    address = f"{'tailrace+tls' if endpoint.tls else 'tailrace'}://{endpoint.address}"
    return endpoint.dataset, ReachOptions(where.config, address, where.store, where.credential_file, where.ca_file)


def updates(publisher: Connection, info: DatasetInfo, options: TailOptions) -> Iterator[UpdateBatch | DataLoss]:
    """Batches, and what is lost between them, until the range ends.

    A stream that breaks off is an error, as the reader of a pipe must learn of it.
    """
    head = head_of(publisher, info) if options.start == LATEST else START
    place = range_of(options, info, time.time(), head)
    ticket = ReadRange(
        dataset=info.name,
        after=place.after,
        until=place.until,
        filter=options.filter,
        follow=place.follow,
        since_us=place.since_us,
    )
    with publisher.get(ticket) as stream:
        for batch, metadata in stream:
            message = decode_down(metadata)
            if isinstance(message, DataLoss):
                yield message
            elif isinstance(message, Updates) and batch is not None and batch.num_rows:
                yield UpdateBatch(batch, message.line, 0, message.through)
    if place.follow:
        raise Disconnected(address=publisher.address, reason="the publisher ended the stream: it is shutting down")


def head_of(publisher: Connection, info: DatasetInfo) -> Position:
    for one in ask_status(publisher).datasets:
        if one.dataset == info.name:
            return one.head
    raise CredentialRefused(reason=f"it lacks the scope 'read' on dataset {info.name!r}")


def range_of(options: TailOptions, info: DatasetInfo, now: float, head: Position) -> Range:
    """What `--from` and `--until` mean. Pure."""
    after, since_us = (head, None) if options.start == LATEST else _start(options.start, info, now)
    if options.until is None:
        return Range(after, since_us, None, follow=True)
    until = None if options.until == "head" else _position(options.until, info)
    return Range(after, since_us, until, follow=False)


def _start(text: str, info: DatasetInfo, now: float) -> tuple[Position | None, int | None]:
    if text == "earliest":
        return None, None
    if text.startswith("-"):
        try:
            return None, int(max(0.0, now + Duration.parse(text)) * 1e6)  # nothing is older than the epoch
        except ValueError as error:
            raise PositionInvalid(text=text, reason=f"{error} (an age reads -30s, -5m, -2h)") from error
    return _position(text, info), None


def _position(text: str, info: DatasetInfo) -> Position:
    asked = LinePosition.parse(text)
    if asked.line != info.line:
        raise PositionInvalid(text=text, reason=f"the line of dataset {info.name!r} is {info.line!r}")
    return asked.position


# ---- lines ----------------------------------------------------------------------------------------------------------


def _print_all(options: TailOptions, batches: Iterator[UpdateBatch | DataLoss]) -> None:
    left = options.limit
    coloured = on_terminal() and not options.as_json
    for batch in batches:
        if isinstance(batch, DataLoss):
            note(loss_line(batch))
            continue
        for update in batch:
            if options.as_json:
                say_json(as_object(update, batch.line))
            elif coloured:
                _print_coloured(update, batch.line)
            else:
                sys.stdout.write(as_line(update, batch.line) + "\n")
            if left is not None:
                left -= 1
                if left == 0:
                    sys.stdout.flush()
                    return
        sys.stdout.flush()


def as_object(update: Update, line: str) -> dict[str, Any]:
    """An update as JSON; what is no text is hexadecimal with 0x before it."""
    before = update.before
    shown: dict[str, Any] = {
        "position": str(LinePosition(line, update.position)),
        "shard": update.shard,
        "committed_at": instant_text(update.committed_at) if update.committed_at else None,
        "table": update.table,
        "operation": update.operation,
        "key": _json_value(update.key),
        "pairs": {name: _json_value(value) for name, value in update.pairs.items()},
    }
    if before is not None:
        shown["before"] = {name: _json_value(value) for name, value in before.items()}
    return shown


def _json_value(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def as_line(update: Update, line: str) -> str:
    """Position, commit time, table, operation, key and pairs, with tabs between them."""
    moment = instant_text(update.committed_at) if update.committed_at else "-"
    pairs = " ".join(f"{name}={readable(value)}" for name, value in update.pairs.items())
    fields = (
        str(LinePosition(line, update.position)),
        moment,
        update.table,
        update.operation,
        readable(update.key),
        pairs,
    )
    return "\t".join(fields)


def loss_line(loss: DataLoss) -> str:
    after, until = (LinePosition(loss.line, position) for position in (loss.after, loss.until))
    return f"lost: the log does not hold what lies after {after}, up to and with {until}: {loss.reason}"


_COLOURS: Final = {"delete": "red", "delete_range": "red", "truncate": "red", "put": "green", "insert": "green"}


def _print_coloured(update: Update, line: str) -> None:
    from rich.text import Text

    from tailrace.cli.output import console

    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{LinePosition(line, update.position)}  ", style="dim")
    if update.committed_at:
        text.append(f"{instant_text(update.committed_at)}  ", style="dim")
    text.append(f"{update.table} ", style="bold")
    text.append(f"{update.operation} ", style=_COLOURS.get(update.operation, "yellow"))
    text.append(f"{readable(update.key)}  ", style="bold")
    text.append(" ".join(f"{name}={readable(value)}" for name, value in update.pairs.items()))
    console().print(text)
