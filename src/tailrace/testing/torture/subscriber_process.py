"""A subscriber: appends what it receives to its file, and only then returns to the library.

So whatever was acknowledged is in the file, however the process ends.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any, Final

from tailrace.runtime.tasks import drain_on_signals
from tailrace.subscriber import Application, Subscription, subscribe
from tailrace.testing.torture.content import APPLICATIONS, TABLE, identity
from tailrace.testing.torture.records import (
    DAMAGED,
    DELIVERY_RECORD,
    LOSS_NOTICE,
    RECEIVED,
    RecordFile,
    started_row,
)
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import Position

LOOK_S: Final = 0.2


class Recorder(Application):
    """`subscription` is set as soon as there is one: its thread may call before."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self.subscription: Future[Subscription] = Future()

    def on_updates(self, batch: UpdateBatch) -> None:
        at_ns = time.monotonic_ns()  # first, so that the lease was looked at no later than this
        session = self._session()
        columns: list[list[Any]] = [
            batch.data.column(name).to_pylist()
            for name in ("shard", "era", "sequence", "table", "operation", "key", "pairs")
        ]
        self._file.append([(*_row(at_ns, *values), session) for values in zip(*columns, strict=True)])

    def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
        print(f"loss notice: shard {shard} after {after} until {until}: {reason}", flush=True)
        self._file.append([(LOSS_NOTICE, shard, 0, time.monotonic_ns(), until.sequence, until.era, 0, self._session())])

    def _session(self) -> int:
        """The one that calls; its name is a hexadecimal number."""
        return int(self.subscription.result().status.session, 16)


def _row(
    at_ns: int, shard: int, era: int, sequence: int, table: str, operation: str, key: bytes, pairs: Any
) -> tuple[int, ...]:
    found = identity(key, dict(pairs or ()))
    if found is None or (table, operation) != (TABLE, "put") or found[0] != shard:
        print(f"damaged: {shard} {era}:{sequence} {table} {operation} {key!r} {pairs!r}", flush=True)
        return (DAMAGED, shard, 0, at_ns, sequence, era, 0)
    return (RECEIVED, shard, found[1], at_ns, sequence, era, found[2])


def main(url: str, application: str, name: str, deliveries: Path) -> int:
    stop = Event()
    [known] = [each for each in APPLICATIONS if each.name == application]
    file = RecordFile(deliveries, DELIVERY_RECORD)
    file.append([started_row()])
    recorder = Recorder(file)
    subscription = subscribe(
        url, recorder, application=application, filter=known.filter, subscriber=name, start="earliest"
    )
    recorder.subscription.set_result(subscription)
    print("ready", flush=True)
    with drain_on_signals(stop):
        while not stop.is_set() and not subscription.wait(LOOK_S):
            continue
    subscription.close()
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
