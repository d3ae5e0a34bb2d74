"""What a subscription knows across its sessions, and shows as its status.

Written by the subscription's thread alone; `status` takes a picture of it from any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tailrace.errors import Fenced
from tailrace.runtime.clock import Clock
from tailrace.updates.position import Position
from tailrace.wire.messages import Opened

STALE_OWNER_S: Final = 30.0  # for so long after a newer owner spoke, an older one is not believed

State = Literal["connecting", "standby", "live", "closed", "failed"]


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription at one moment. `updates` counts those that came again after a reconnect as well.

    `last_error` says why it last lost its publisher, or what the application last failed on and is given again.
    """

    state: State
    address: str
    session: str
    epoch: int
    shards: tuple[int, ...]
    line: str
    progress: Position | None
    updates: int
    sessions: int
    last_error: str


class ShardChange(NamedTuple):
    """The shards that a newly opened stream brings, and those that it does not bring back."""

    gained: list[int]
    gone: list[int]


class Ledger:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_at = clock.monotonic()
        self._shards: tuple[int, ...] = ()
        self._session = ""
        self._epoch = 0
        self._line = ""
        self._updates = 0
        self._sessions = 0
        self.state: State = "connecting"
        self.address = ""
        self.progress: Position | None = None
        self.last_error = ""

    def opened(self, message: Opened) -> ShardChange:
        """A stream opens. `Fenced` if it comes from an owner that another one superseded just now."""
        now = self._clock.monotonic()
        if message.epoch < self._epoch and now - self._heard_at < STALE_OWNER_S:
            raise Fenced(
                what=f"the publisher at {self.address}", reason=f"its epoch {message.epoch} is older than {self._epoch}"
            )
        self.state = "standby" if message.standby else "live"
        if message.session != self._session:
            self._sessions += 1
            self._session = message.session
        held, given = set(self._shards), set(message.shards)
        self._shards = tuple(sorted(given))
        self._epoch, self._heard_at = message.epoch, now
        if message.line != self._line:
            self._line, self.progress = message.line, None
        return ShardChange(gained=sorted(given - held), gone=sorted(held - given))

    def delivered(self, updates: int, through: Position) -> None:
        self._updates += updates
        self.progress = through
        self._heard_at = self._clock.monotonic()

    def revoked(self, shards: Sequence[int]) -> None:
        self._shards = tuple(sorted(set(self._shards).difference(shards)))

    def status(self) -> SubscriptionStatus:
        return SubscriptionStatus(
            state=self.state,
            address=self.address,
            session=self._session,
            epoch=self._epoch,
            shards=self._shards,
            line=self._line,
            progress=self.progress,
            updates=self._updates,
            sessions=self._sessions,
            last_error=self.last_error,
        )
