"""Compares what was written with what arrived. Pure: it knows these records and nothing of the system under test.

For each application, in the order in which its subscribers received:

- *lost*: a committed update that the filter wants and that never came. Committed is what was acknowledged to the
  writer, and what any application received.
- *out of order*: at its first delivery, an update of a shard came after a later one. Repeats after a restart are lawful
  duplicates, so only first deliveries count. Later means a higher number, for updates that were acknowledged; a write
  whose connection broke before its answer may land after those of the next connection, so of such a one only the
  position counts: first deliveries must rise by that too.
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
    corrupt: int = 0
    loss_notices: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.delivered += other.delivered
        self.duplicates += other.duplicates
        self.lost += other.lost
        self.out_of_order += other.out_of_order
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

    first = _first_deliveries(received[genuine])
    verdict.duplicates = int(genuine.sum()) - len(first)
    shards, numbers = parts_of(committed)
    missing = np.setdiff1d(committed[application.wants(shards, numbers)], ids_of(first))
    verdict.lost = len(missing)
    _show(verdict, application, "lost", missing)

    late = _out_of_order(written, first)
    verdict.out_of_order = len(late)
    _show(verdict, application, "out of order", late)
    return verdict


def _out_of_order(written: Written, first: Records) -> Ids:
    """The first deliveries that came after a later update of the same shard."""
    late: list[Ids] = [np.empty(0, np.int64)]
    for shard in np.unique(first["shard"]):
        own = first[first["shard"] == shard]
        ids = ids_of(own)
        acknowledged = written.acknowledged[written.rows_of(ids)[0]]
        late.append(ids[_falls(own["number"]) & acknowledged])
        for era in np.unique(own["era"]):
            of_era = own["era"] == era
            late.append(ids[of_era][_falls(own["sequence"][of_era])])
        late.append(ids[_falls(own["era"])])
    return np.unique(np.concatenate(late))


def _falls(values: Integers) -> npt.NDArray[np.bool_]:
    """Where a value is lower than one before it."""
    falls: npt.NDArray[np.bool_] = values < np.maximum.accumulate(values)
    return falls


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
