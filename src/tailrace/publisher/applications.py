"""An application as its publisher sees it: its record, its flows' markers, who has them, and who waits.

An application's flows have one subscriber at a time. A second one stands by and is given the flows once the first has
left, or once its silence has outlasted its lease: until then it may still be working on what it was sent. A new session
of the same subscriber need not wait, because a subscriber drops its old session before it opens another. Who has the
flows is kept on disk, so that a publisher that was restarted waits out the lease which the one before it had granted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tailrace.errors import ApplicationDiffers
from tailrace.publisher.stream import Stream
from tailrace.updates.position import Marker, Position
from tailrace.wire.messages import Mode


class ApplicationRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of an application wherever it is published; a record in the coordinator.

    `start` is where flows begin that have no marker yet: fixed when the record is made, so that 'latest' means the head
    of that moment however often its subscriber comes and goes before its first acknowledgement.
    """

    dataset: str
    application: str
    filter: str | None
    mode: Mode
    start: Position
    version: int = 1


def refuse_difference(record: ApplicationRecord, filter: str | None, mode: Mode) -> None:
    """A subscriber that expects another filter or mode than the record says would get what it does not want."""
    differences = []
    if record.filter != filter:
        differences.append(f"filter is {record.filter or 'none'}, asked for {filter or 'none'}")
    if record.mode != mode:
        differences.append(f"mode is {record.mode}, asked for {mode}")
    if differences:
        raise ApplicationDiffers(
            application=record.application,
            difference="; ".join(differences),
            remedy="subscribe as it is recorded, or under another name",
        )


@dataclass(eq=False, slots=True)
class Session:
    """A subscriber's connection, and when it was last heard of. `connected` ends with its stream."""

    stream: Stream
    heard_at: float
    connected: bool = True
    left: bool = False


Step = Literal["keep", "release", "promote", "none"]


def next_step(active: Session | None, standbys: int, now: float, fenced_after_s: float) -> Step:
    """What to do about an application's flows. Pure; called by the janitor and at every event.

    `release`: the active session left, or is silent for so long that its library has discarded what it held.
    """
    if active is None:
        return "promote" if standbys else "none"
    if active.left or now - active.heard_at > fenced_after_s:
        return "release"
    return "keep"


def next_in_line(standbys: Sequence[Session], holder: str, may_hold: bool) -> Session | None:
    """Who is to have the flows: while `holder` may still work on them, nobody but itself. Pure."""
    if not may_hold or not holder:
        return standbys[0]
    return next((session for session in standbys if session.stream.subscriber == holder), None)


@dataclass(eq=False, slots=True)
class Application:
    """An application's state at this publisher; who has its flows and its markers change under `lock` only.

    `sent` is the furthest that any session got; None while nothing was sent by this process: an earlier one may have
    sent everything that the log held.
    """

    record: ApplicationRecord
    markers: dict[int, Marker]
    lock: threading.RLock = field(default_factory=threading.RLock)
    active: Session | None = None
    standbys: deque[Session] = field(default_factory=deque)
    progress: Position | None = None
    sent: Position | None = None
    problem: str = ""
    holder: str = ""  # the subscriber that has the flows, or had them when the last publisher ended
    dead_letters: int = 0
    losses: int = 0  # acknowledged by its subscribers since this process began

    @property
    def name(self) -> str:
        return self.record.application

    @property
    def acknowledged(self) -> Position:
        """The least marker of its flows."""
        return min((marker.position for marker in self.markers.values()), default=self.record.start)

    def sessions(self) -> list[Session]:
        return [*([self.active] if self.active else []), *self.standbys]
