"""What the publisher needs of a datastore's log, whatever the datastore.

Guarantees that an implementation gives:

- `read` yields updates in log order, whole transactions at a time where the log has them; it never skips. What it
  cannot read is a `LogError` that carries the address.
- It yields only what the datastore's durability setting has made safe.
- A source may be read by several threads at once, each through its own `read` iterator.
- `read` wakes within milliseconds of a commit and returns (rather than raises) soon after `stop` is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import NamedTuple, Protocol

import pyarrow as pa

from tailrace.sources.limits import BATCH_BYTES
from tailrace.updates.position import Checkpoint, Marker, Position


class Bounds(NamedTuple):
    """Everything after `after`, up to and with `through`, can be read now."""

    after: Position
    through: Position


class Lost(NamedTuple):
    """What lay in (after, until] is not in the log: writes that bypassed it, where the configuration lets them."""

    after: Position
    until: Position
    reason: str


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Some updates in log order, and up to where the log has been read.

    `through` lies at a transaction's end; it moves on even where nothing was to be delivered (`updates` is empty).
    `checkpoint` is `through` with its witness. `log_bytes` is how much of the log was read for it. `at_head` says that
    nothing more was there to read when the batch was cut. `loss` is what is missing right before `updates`.
    """

    updates: pa.RecordBatch
    checkpoint: Checkpoint
    log_bytes: int
    at_head: bool
    loss: Lost | None = None

    @property
    def through(self) -> Position:
        return self.checkpoint.position


class Address(NamedTuple):
    """Where a position lies in one datastore's log: a file and a byte offset. Never leaves its publisher."""

    path: str
    offset: int


class Source(Protocol):
    line: str
    era: int

    def bounds(self) -> Bounds: ...

    def locate(self, marker: Marker) -> Address:
        """Where reading after `marker` starts. `LogTruncated` if it is gone, `LogDiverged` if the witness differs."""

    def read(self, after: Position, *, stop: Event, max_batch_bytes: int = BATCH_BYTES) -> Iterator[LogBatch]: ...

    def close(self) -> None: ...


class Horizon(Protocol):
    """How far a store's durability setting has made its log safe, as a RocksDB sequence number.

    The embedded store implements it in its own process; a publisher elsewhere follows it over the store's Flight front.
    Waiting on it is also how a reader learns of a commit at once.
    """

    def safe_through(self) -> int: ...

    def wait_beyond(self, sequence: int, timeout_s: float) -> int:
        """Waits until `safe_through() > sequence`, at most `timeout_s`; returns what `safe_through()` is then."""
