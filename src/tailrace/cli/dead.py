"""`tailrace dead`: what an application could not process, why, and another try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from tailrace.cli.output import moment, readable, say, say_json, show_table
from tailrace.cli.reach import ReachOptions, reach, the_dataset
from tailrace.cli.tailing import as_line, as_object
from tailrace.errors import ProtocolMismatch
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import LinePosition
from tailrace.wire.messages import (
    DeadLetter,
    DeadList,
    DeadListReply,
    DeadRetry,
    DeadRetryReply,
    DeadShow,
    DeadShowReply,
    Message,
    decode_reply,
)

if TYPE_CHECKING:
    from tailrace.wire.client import Connection

R = TypeVar("R")

COLUMNS = ("letter", "position", "table", "operation", "key", "attempts", "state", "buried at", "error")


def list_letters(application: str, dataset: str | None, limit: int, where: ReachOptions, as_json: bool) -> None:
    with reach(where).publisher() as publisher:
        info = the_dataset(publisher, dataset)
        reply = _ask(publisher, DeadList(dataset=info.name, application=application, limit=limit), DeadListReply)
    if as_json:
        for letter in reply.letters:
            say_json(_as_object(letter, info.line))
        return
    if not reply.letters:
        say(f"{application} has no dead letters")
        return
    title = f"{len(reply.letters)} of {reply.total} dead letters of {application}"
    show_table(title, COLUMNS, [_row(letter, info.line) for letter in reply.letters])


def show_letter(application: str, dataset: str | None, letter: int, where: ReachOptions, as_json: bool) -> None:
    with reach(where).publisher() as publisher:
        info = the_dataset(publisher, dataset)
        ask = DeadShow(dataset=info.name, application=application, letter=letter)
        reply = _ask(publisher, ask, DeadShowReply)
    with pa.ipc.open_stream(reply.update) as reader:
        row = reader.read_next_batch()
    update = UpdateBatch(row, info.line, 0, reply.letter.position)[0]
    found = reply.letter
    if as_json:
        say_json({**_as_object(found, info.line), "update": as_object(update, info.line)})
        return
    say(f"letter    {found.letter} of {application} ({found.state})")
    say("error     " + "\n          ".join(found.error.splitlines()))
    say(f"attempts  {found.attempts}, the last at {moment(found.buried_at)}")
    say(f"update    {as_line(update, info.line)}")


def retry_letters(application: str, dataset: str | None, letters: list[int] | None, where: ReachOptions) -> None:
    with reach(where).publisher() as publisher:
        info = the_dataset(publisher, dataset)
        ask = DeadRetry(dataset=info.name, application=application, letters=letters)
        reply = _ask(publisher, ask, DeadRetryReply)
    if not reply.retrying:
        say(f"{application} has no dead letters but those that wait for another try already")
        return
    marked = "1 dead letter" if reply.retrying == 1 else f"{reply.retrying} dead letters"
    say(
        f"{application} tries {marked} again as soon as its subscriber is there; "
        f"`tailrace dead list {application}` shows what is left"
    )


def _ask(publisher: Connection, ask: Message, kind: type[R]) -> R:
    reply: object = publisher.call(ask, decode_reply)
    if not isinstance(reply, kind):
        raise ProtocolMismatch(
            reason=f"{publisher.address} answered {type(ask).__name__} with a {type(reply).__name__}"
        )
    return reply


def _row(letter: DeadLetter, line: str) -> list[str]:
    return [
        str(letter.letter), str(LinePosition(line, letter.position)), letter.table, letter.operation,
        readable(letter.key), str(letter.attempts), letter.state, moment(letter.buried_at),
        letter.error.partition("\n")[0],
    ]  # fmt: skip


def _as_object(letter: DeadLetter, line: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(letter, builtin_types=(bytes,))
    return {**found, "position": str(LinePosition(line, letter.position)), "key": readable(letter.key)}
