"""Which history a line is on: its identity, and the era that rises whenever the history forks.

A publisher or store registers its line when it opens. A changed identity (the store was wiped, or is another one) or a
log that ends before what was already acknowledged (it was restored from a backup) is a fork: positions from then on lie
in the next era and so above everything that was ever delivered. Whoever finds a fork later, by a witness that does not
match, raises the era beyond the one he found it in; of several who find the same fork, one raises it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tailrace.coordination.interface import Coordinator, path_of
from tailrace.coordination.records import RecordKind
from tailrace.errors import CoordinatorUnavailable
from tailrace.updates.position import Position

MAX_ERA: Final = 2**15 - 1
MAX_EARLIER: Final = 16
_MAX_ATTEMPTS: Final = 100  # each failed one means that another process succeeded
_LINES: Final = "lines"


class Ended(msgspec.Struct, frozen=True):
    """A history that a line was on before."""

    era: int
    identity: str
    reason: str
    delivered: Position | None = None  # how far updates of that era got, where whoever found the fork knew


class LineRecord(msgspec.Struct, frozen=True):
    identity: str
    era: int
    earlier: tuple[Ended, ...] = ()  # newest first, at most `MAX_EARLIER`

    def forked(self, identity: str, era: int, reason: str, delivered: Position | None = None) -> LineRecord:
        assert self.era < era <= MAX_ERA, f"the era goes from {self.era} to {era}"
        ended = Ended(self.era, self.identity, reason, delivered)
        return LineRecord(identity, era, (ended, *self.earlier)[:MAX_EARLIER])


LINE_RECORDS: Final = RecordKind("line", LineRecord)


def line_path(line: str) -> str:
    return path_of(_LINES, line)


def read_line(coordinator: Coordinator, line: str) -> LineRecord | None:
    """What is recorded of a line; None if it was never registered."""
    found = coordinator.get(line_path(line))
    return LINE_RECORDS.decode(line_path(line), found.value) if found else None


def register_line(
    coordinator: Coordinator,
    line: str,
    identity: str,
    *,
    head: Position | None = None,
    acknowledged: Position | None = None,
) -> int:
    """The era in which a log with this identity continues the line.

    `acknowledged` is the greatest marker known to the caller. `head` is where the log ends, given only for a line's
    only copy: a replica that ends before a marker is merely late. Both may be absent.
    """

    def decide(record: LineRecord | None) -> LineRecord:
        return decide_line(record, identity, head, acknowledged)

    return _change(coordinator, line, decide).era


def raise_era(
    coordinator: Coordinator, line: str, *, beyond: int, reason: str, delivered: Position | None = None
) -> int:
    """The line's era after a fork was found in era `beyond`; it is raised unless that has been done."""

    def decide(record: LineRecord | None) -> LineRecord:
        if record is None:
            return LineRecord(identity="", era=beyond + 1)
        return record if record.era > beyond else record.forked(record.identity, beyond + 1, reason, delivered)

    return _change(coordinator, line, decide).era


def decide_line(
    record: LineRecord | None, identity: str, head: Position | None, acknowledged: Position | None
) -> LineRecord:
    """What the record becomes when a log with this identity registers. Pure."""
    marked_era = acknowledged.era if acknowledged else 0
    if record is None:  # never registered, or the coordinator's data is lost while markers remain
        record = LineRecord(identity, marked_era)
    elif record.identity not in ("", identity):
        reason = f"the identity became {identity}"
        record = record.forked(identity, max(record.era, marked_era) + 1, reason)
    elif record.era < marked_era or not record.identity:
        record = LineRecord(identity, max(record.era, marked_era), record.earlier)
    if head and acknowledged and acknowledged.era == record.era and head.sequence < acknowledged.sequence:
        reason = f"the log ends at sequence {head.sequence}, before the acknowledged {acknowledged.sequence}"
        return record.forked(identity, record.era + 1, reason)
    return record


def _change(coordinator: Coordinator, line: str, decide: Callable[[LineRecord | None], LineRecord]) -> LineRecord:
    path = line_path(line)
    for _ in range(_MAX_ATTEMPTS):
        found = coordinator.get(path)
        record = LINE_RECORDS.decode(path, found.value) if found else None
        decided = decide(record)
        if decided == record:
            return decided
        encoded = LINE_RECORDS.encode(decided)
        if found is None and coordinator.create(path, encoded):
            return decided
        if found is not None and coordinator.put(path, encoded, found.version) is not None:
            return decided
    raise CoordinatorUnavailable(path=path, reason=f"changed by others {_MAX_ATTEMPTS} times in a row")
