"""`tailrace reached`: has an application processed a write?"""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Final

import typer

from tailrace.cli.failures import FAILED
from tailrace.cli.output import say
from tailrace.cli.reach import Reach, ReachOptions, reach, the_dataset
from tailrace.errors import PositionInvalid, ProtocolMismatch, Unavailable
from tailrace.runtime.clock import SYSTEM_CLOCK, Deadline
from tailrace.updates.position import LinePosition, Position
from tailrace.wire.messages import Reached, ReachedReply, decode_reply

if TYPE_CHECKING:
    from tailrace.wire.client import Connection

_LOOK_S: Final = 0.05


def ask_reached(application: str, text: str, dataset: str | None, wait_s: float, where: ReachOptions) -> None:
    asked = LinePosition.parse(text)
    with reach(where).publisher() as publisher:
        info = the_dataset(publisher, dataset)
        if info.line != asked.line:
            raise PositionInvalid(text=text, reason=f"the line of dataset {info.name!r} is {info.line!r}")
        answer = _wait(publisher, info.name, application, asked.position, wait_s)
    if answer.reached:
        say("reached")
        return
    shown = LinePosition(asked.line, answer.progress) if answer.progress else "unknown"
    say(f"not reached; its progress is {shown}")
    raise typer.Exit(FAILED)


def wait_until_reached(found: Reach, dataset: str, application: str, position: Position, timeout_s: float) -> None:
    """Returns once it is; `Unavailable` if it takes longer."""
    with found.publisher() as publisher:
        answer = _wait(publisher, dataset, application, position, timeout_s)
    if not answer.reached:
        shown = f"its progress is {answer.progress}" if answer.progress else "no subscriber reports progress"
        raise Unavailable(reason=f"{application!r} had not processed {position} after {timeout_s:g} s; {shown}")


def _wait(publisher: Connection, dataset: str, application: str, position: Position, wait_s: float) -> ReachedReply:
    deadline = Deadline(wait_s)
    pause = Event()
    while True:
        answer = publisher.call(Reached(dataset=dataset, application=application, position=position), decode_reply)
        if not isinstance(answer, ReachedReply):
            raise ProtocolMismatch(reason=f"{publisher.address} answered Reached with a {type(answer).__name__}")
        if answer.reached or deadline.passed():
            return answer
        SYSTEM_CLOCK.wait(pause, _LOOK_S)
