"""An application that writes down what it is called with, and lets a test wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tailrace.subscriber import Application, Token
from tailrace.updates.batch import UpdateBatch
from tailrace.updates.position import Position

LIMIT_S = 10.0


class Recorder(Application):
    """`calls` are (callback, argument); `fails` decides which sequences `on_updates` raises on."""

    def __init__(self, fails: Callable[[int], bool] = lambda sequence: False) -> None:
        self.calls: list[tuple[str, object]] = []
        self.batches: list[UpdateBatch] = []
        self.tokens: list[Token] = []
        self.fails = fails
        self.token_answer: bool | None = None
        self.hold: threading.Event | None = None  # on_updates waits for it
        self._changed = threading.Condition()

    def note(self, callback: str, argument: object) -> None:
        with self._changed:
            self.calls.append((callback, argument))
            self._changed.notify_all()

    def on_updates(self, batch: UpdateBatch) -> None:
        sequences = [update.position.sequence for update in batch]
        with self._changed:
            self.batches.append(batch)
        self.note("updates", sequences)
        if self.hold is not None:
            assert self.hold.wait(LIMIT_S)
        failing = [sequence for sequence in sequences if self.fails(sequence)]
        if failing:
            raise ValueError(f"cannot take {failing[0]}")
        self.note("processed", sequences)

    def on_shard_notice(self, shard: int) -> None:
        self.note("notice", shard)

    def on_token(self, token: Token) -> bool | None:
        self.tokens.append(token)
        self.note("token", token.number)
        return self.token_answer

    def on_shard_revoked(self, shard: int) -> None:
        self.note("revoked", shard)

    def on_data_loss(self, shard: int, after: Position, until: Position, reason: str) -> None:
        self.note("loss", (shard, after.sequence, until.sequence, reason))

    def until(self, callback: str, argument: object = None, count: int = 1) -> None:
        """Waits until a call was made `count` times (with that argument, if one is given)."""
        deadline = time.monotonic() + LIMIT_S

        def matches() -> int:
            return sum(1 for name, held in self.calls if name == callback and argument in (None, held))

        with self._changed:
            while matches() < count:
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"{callback}({argument}) was not called {count} times: {self.calls}"
                self._changed.wait(left_s)

    def made(self, callback: str) -> list[object]:
        return [argument for name, argument in self.calls if name == callback]
