"""Compares what was written with what arrived. Pure: it knows these records and nothing of the system under test.

For each application, in the order in which its subscribers received:

- *lost*: a committed update that the filter wants and that never came. Committed is what was acknowledged to the
  writer, and what any application received.
- *out of order*: an update of a shard came after a later one, within one session, or counting only the first delivery
  of each. Repeats are lawful in another session, in order. Later means a higher number, for updates that were
  acknowledged; a write whose connection broke before its answer may land after those of the next connection, so of such
  a one only the position counts: that must rise for all.
- *after a handover*: a session received it although another one had taken over from it. A session looks at its lease
  right before each batch, and its process may be stopped between that look and the call: so a session's last batch may
  come at any later moment, but none of those before it.
- *corrupt*: content that does not match its checksum, an update that was never sent or not like this, or one that the
  filter does not want.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailrace.testing.torture.content import TestApplication
from tailrace.testing.torture.records import (
    ACKNOWLEDGED,
    DAMAGED,
    DELIVERY_RECORD,
    LOSS_NOTICE,
    RECEIVED,
    SENT,
    Records,
)

EXAMPLES: Final = 5  # of each kind of problem, shown in the report
_NUMBER_BITS: Final = 40

Ids = npt.NDArray[np.int64]  # shard and number in one integer
Integers = npt.NDArray[Any]


@dataclass
class Verdict:
    """What one application, or all of them together, got wrong."""

    delivered: int = 0
    duplicates: int = 0
    lost: int = 0
    out_of_order: int = 0
    after_handover: int = 0
    corrupt: int = 0
    loss_notices: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.delivered += other.delivered
        self.duplicates += other.duplicates
        self.lost += other.lost
        self.out_of_order += other.out_of_order
        self.after_handover += other.after_handover
        self.corrupt += other.corrupt
        self.loss_notices += other.loss_notices
        self.examples += other.examples


@dataclass(frozen=True)
class Written:
    """What the writer sent, sorted by identity, and which of it was acknowledged."""

    ids: Ids
    checksums: Integers
    acknowledged: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, records: Records) -> Written:
        sent = records[records["kind"] == SENT]
        ids = ids_of(sent)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        assert (np.diff(ids) > 0).all(), "the writer sent a number twice"
        acknowledged = np.isin(ids, ids_of(records[records["kind"] == ACKNOWLEDGED]))
        return cls(ids, sent["checksum"][order], acknowledged)

    def rows_of(self, ids: Ids) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Where each identity stands, and whether it is there at all."""
        if not len(self.ids):
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return rows, self.ids[rows] == ids


def check(
    writes: Records, deliveries: Mapping[str, Sequence[Records]], applications: Sequence[TestApplication]
) -> dict[str, Verdict]:
    """A verdict per application. `deliveries` holds the files of each application's subscribers."""
    written = Written.of(writes)
    merged = {application.name: _in_time(deliveries.get(application.name, ())) for application in applications}
    arrived = [ids_of(records[records["kind"] == RECEIVED]) for records in merged.values()]
    committed = np.union1d(written.ids[written.acknowledged], np.concatenate([*arrived, np.empty(0, np.int64)]))
    committed = committed[written.rows_of(committed)[1]]
    return {
        application.name: check_application(written, committed, merged[application.name], application)
        for application in applications
    }


def check_application(written: Written, committed: Ids, records: Records, application: TestApplication) -> Verdict:
    received = records[records["kind"] == RECEIVED]
    verdict = Verdict(delivered=len(received), loss_notices=int((records["kind"] == LOSS_NOTICE).sum()))
    verdict.corrupt += int((records["kind"] == DAMAGED).sum())
    ids = ids_of(received)
    rows, known = written.rows_of(ids)
    genuine = known.copy()
    genuine[known] = written.checksums[rows[known]] == received["checksum"][known]
    genuine &= application.wants(received["shard"].astype(np.int64), received["number"])
    verdict.corrupt += int((~genuine).sum())
    _show(verdict, application, "corrupt", ids[~genuine])

    sound = received[genuine]
    first = _first_deliveries(sound)
    verdict.duplicates = len(sound) - len(first)
    shards, numbers = parts_of(committed)
    missing = np.setdiff1d(committed[application.wants(shards, numbers)], ids_of(first))
    verdict.lost = len(missing)
    _show(verdict, application, "lost", missing)

    sequences = [first, *_groups(sound, "session")]
    late = np.unique(np.concatenate([_out_of_order(written, sequence) for sequence in sequences]))
    verdict.out_of_order = len(late)
    _show(verdict, application, "out of order", late)

    fenced = _after_handover(received)
    verdict.after_handover = len(fenced)
    _show(verdict, application, "from a session that was over", fenced)
    return verdict


def _out_of_order(written: Written, received: Records) -> Ids:
    """The updates that came after a later one of the same shard, or a second time."""
    late: list[Ids] = [np.empty(0, np.int64)]
    for own in _groups(received, "shard"):
        ids = ids_of(own)
        acknowledged = written.acknowledged[written.rows_of(ids)[0]]
        late.append(ids[_not_above(own["number"]) & acknowledged])
        late.append(ids[_not_above((own["era"].astype(np.int64) << _NUMBER_BITS) | own["sequence"])])
    return np.concatenate(late)


def _after_handover(received: Records) -> Ids:
    """What came after the first batch of a session that began later, leaving out the last batch of each session."""
    _, session = np.unique(received["session"], return_inverse=True)
    last_ns = np.zeros(len(received), np.int64)
    np.maximum.at(last_ns, session, received["at_ns"])
    judged = np.flatnonzero(received["at_ns"] < last_ns[session])
    _, first, session = np.unique(session[judged], return_index=True, return_inverse=True)
    began = first[session]
    return ids_of(received[judged[began < np.maximum.accumulate(began)]])


def _groups(records: Records, field: str) -> list[Records]:
    """The records of each value of a field, in their order."""
    records = records[np.argsort(records[field], kind="stable")]
    return np.split(records, np.flatnonzero(np.diff(records[field])) + 1)


def _not_above(values: Integers) -> npt.NDArray[np.bool_]:
    """Where a value is not higher than all before it."""
    found = np.zeros(len(values), np.bool_)
    found[1:] = values[1:] <= np.maximum.accumulate(values)[:-1]
    return found


def _first_deliveries(received: Records) -> Records:
    """Each update once, in the order of first arrival."""
    _, at = np.unique(ids_of(received), return_index=True)
    return received[np.sort(at)]


def _in_time(files: Sequence[Records]) -> Records:
    """All subscribers of an application in one sequence. Their clock is the machine's, so its order is the true one."""
    merged = np.concatenate([np.empty(0, DELIVERY_RECORD), *files])
    return merged[np.argsort(merged["at_ns"], kind="stable")]


def ids_of(records: Records) -> Ids:
    ids: Ids = (records["shard"].astype(np.int64) << _NUMBER_BITS) | records["number"]
    return ids


def parts_of(ids: Ids) -> tuple[Ids, Ids]:
    return ids >> _NUMBER_BITS, ids & ((1 << _NUMBER_BITS) - 1)


def _show(verdict: Verdict, application: TestApplication, what: str, ids: Ids) -> None:
    for shard, number in list(zip(*parts_of(ids[:EXAMPLES]), strict=True)):
        verdict.examples.append(f"{application.name}: shard {shard} number {number} is {what}")
