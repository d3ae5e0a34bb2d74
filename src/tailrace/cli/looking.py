"""`tailrace status`: each log and each application, once or again every second."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import Event
from typing import TYPE_CHECKING, Final

import msgspec

from tailrace.cli.output import (
    console,
    count,
    on_terminal,
    rich_table,
    say,
    say_json,
    seconds,
    show_table,
    size,
    until_enough,
)
from tailrace.cli.reach import ReachOptions, reach
from tailrace.errors import Kind, ProtocolMismatch, TailraceError
from tailrace.wire.messages import ApplicationStatus, DatasetStatus, Status, StatusReply, decode_reply

if TYPE_CHECKING:
    from rich.console import Group

    from tailrace.wire.client import Connection

REFRESH_S: Final = 1.0
NARROW_COLUMNS: Final = 120
DATASET_COLUMNS: Final = ("dataset", "line", "oldest", "head", "log read", "caravans", "pinned by", "error")
APPLICATION_COLUMNS: Final = (
    "application", "dataset", "state", "lag", "lag s", "acknowledged", "updates/s", "bytes/s", "queued", "dead",
    "subscriber", "standbys", "filter", "reason",
)  # fmt: skip


def ask_status(publisher: Connection) -> StatusReply:
    reply = publisher.call(Status(), decode_reply)
    if not isinstance(reply, StatusReply):
        raise ProtocolMismatch(reason=f"{publisher.address} answered Status with a {type(reply).__name__}")
    return reply


def show_status(where: ReachOptions, *, watch: bool, as_json: bool) -> None:
    with reach(where).publisher() as publisher, until_enough():
        if not watch:
            _show(ask_status(publisher), as_json)
        elif on_terminal() and not as_json:
            watch_live(publisher, Event())
        else:
            _watch_lines(publisher, as_json)


def _show(reply: StatusReply, as_json: bool) -> None:
    if as_json:
        say_json(as_object(reply))
        return
    if on_terminal():
        console().print(status_view(reply))
        return
    show_table("datasets", DATASET_COLUMNS, [dataset_row(one) for one in reply.datasets])
    say("")
    show_table("applications", APPLICATION_COLUMNS, [application_row(one) for one in reply.applications])


def as_object(reply: StatusReply) -> object:
    """The reply as JSON, with positions as they are written elsewhere."""
    found = msgspec.to_builtins(reply)
    for item in (*found["datasets"], *found["applications"]):
        for name, value in item.items():
            if name in ("oldest", "head", "sent", "acknowledged", "progress") and value is not None:
                item[name] = ":".join(map(str, value))
    found.pop("kind", None)
    return found


def watch_live(publisher: Connection, stop: Event, title: str = "") -> None:
    """The table in place, until `stop` is set or Ctrl-C; a publisher that is away is waited for."""
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), refresh_per_second=4, screen=False) as live:
        while not stop.is_set():
            try:
                live.update(status_view(ask_status(publisher), title))
            except TailraceError as error:
                if error.kind is not Kind.RETRY:
                    raise
                live.update(Text(f"{error}; waiting for it", style="yellow"))
            stop.wait(REFRESH_S)


def status_view(reply: StatusReply, title: str = "") -> Group:
    """As many columns as the terminal has room for; a pipe and --json get all."""
    from rich.console import Group
    from rich.text import Text

    up_s = max(0.0, time.time() - reply.started_at)
    narrow = console().width < NARROW_COLUMNS
    hidden = ("dataset", "standbys", "queued", "filter", *(("acknowledged", "bytes/s", "subscriber") if narrow else ()))
    shown = [column for column in APPLICATION_COLUMNS if column not in hidden]
    keep = [APPLICATION_COLUMNS.index(column) for column in shown]
    rows = [application_row(one) for one in reply.applications]
    return Group(
        Text(f"{title or 'tailrace'} · {reply.address} · up {up_s:,.0f} s", style="bold"),
        Text(""),
        rich_table("datasets", DATASET_COLUMNS, [dataset_row(one) for one in reply.datasets]),
        Text(""),
        rich_table("applications", shown, [[row[place] for place in keep] for row in rows]),
    )


def _watch_lines(publisher: Connection, as_json: bool) -> None:
    pause = Event()
    while True:
        reply = ask_status(publisher)
        if as_json:
            say_json(as_object(reply))
        else:
            say_lines(reply.applications)
        pause.wait(REFRESH_S)


def say_lines(applications: Iterable[ApplicationStatus]) -> None:
    """One line for each application, for a pipe."""
    for one in applications:
        say(
            f"{one.application} {one.state.replace(' ', '-')} lag={one.lag_positions} "
            f"lag_s={seconds(one.lag_s)} updates_s={one.updates_s:.0f} dead={one.dead_letters}"
            + (f" reason={one.reason}" if one.reason else "")
        )


def dataset_row(one: DatasetStatus) -> list[str]:
    return [
        one.dataset, one.line, str(one.oldest), str(one.head), size(one.log_bytes), str(one.caravans), one.pinned_by,
        one.error,
    ]  # fmt: skip


def application_row(one: ApplicationStatus) -> list[str]:
    return [
        one.application, one.dataset, one.state, count(one.lag_positions), seconds(one.lag_s), str(one.acknowledged),
        count(one.updates_s), size(one.bytes_s), size(one.queued_bytes), count(one.dead_letters), one.subscriber,
        str(one.standbys), one.filter or "", one.reason,
    ]  # fmt: skip
