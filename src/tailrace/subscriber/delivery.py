"""Calling the application, and what follows when it raises.

An application of batches that raises is given the two halves of its batch in order, and so on down, until the update
that it fails on stands alone; an application of single updates tells by itself. That update is tried again as the error
policy says, and then either ends the subscription or becomes a dead letter, which this returns for the session to
bury. Nothing later is delivered meanwhile, so order holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pyarrow as pa

from tailrace.errors import ApplicationFailed
from tailrace.runtime.clock import Clock
from tailrace.subscriber.application import Application, StopSubscription, wants_batches
from tailrace.subscriber.lease import Lease
from tailrace.subscriber.policy import ErrorPolicy
from tailrace.updates.batch import UpdateBatch

BROKEN: Final = (StopSubscription, MemoryError)  # the application itself cannot go on, whatever the update
MAX_ERROR_TEXT: Final = 2000

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DeadUpdate:
    """An update that the application gave up on: one row, and its last error."""

    data: pa.RecordBatch
    error: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The first `done` updates of a piece were processed, and the next call raised `error`."""

    done: int
    error: Exception


class Delivery:
    """One session's calls of the application. `pause` waits before another attempt, or raises if there is none."""

    def __init__(
        self,
        application: Application,
        name: str,
        policy: ErrorPolicy,
        lease: Lease,
        clock: Clock,
        pause: Callable[[int], None],
    ) -> None:
        self._application = application
        self._name = name
        self._policy = policy
        self._lease = lease
        self._now = clock.monotonic
        self._pause = pause
        self._batches = wants_batches(application)
        self._run = self._run_batch if self._batches else self._run_each

    def deliver(self, batch: UpdateBatch) -> list[DeadUpdate]:
        """Hands over the batch; returns what was given up on. Raises what ends the session or the subscription."""
        failure = self._run(batch)
        if failure is None:
            return []
        return self._isolate(batch, failure)

    def redeliver(self, batch: UpdateBatch) -> dict[int, str]:
        """Hands over dead letters again, one attempt each; returns the rows that failed and their errors."""
        failed: dict[int, str] = {}
        for row in range(len(batch)):
            letter = batch[row : row + 1]
            failure = self._run(letter)
            if failure is not None:
                self._refuse_broken(letter, failure.error)
                failed[row] = shown(failure.error)
        return failed

    def call(self, batchless: Callable[[], R], doing: str) -> R:
        """Calls the application for something else than updates: tried again by the policy, then it stops."""
        attempts = 0
        while True:
            self._lease.check()
            try:
                return batchless()
            except Exception as error:
                self._lease.check()
                attempts += 1
                if isinstance(error, BROKEN) or not self._policy.tries_again(attempts):
                    raise ApplicationFailed(application=self._name, position=doing, reason=shown(error)) from error
            self._pause(attempts)

    def _run_batch(self, piece: UpdateBatch) -> Failure | None:
        self._lease.check()
        try:
            self._application.on_updates(piece)
        except Exception as error:  # noqa: BLE001 - whatever it raises, the policy decides what follows
            return Failure(0, error)
        return None

    def _run_each(self, piece: UpdateBatch) -> Failure | None:
        on_update, now, lease = self._application.on_update, self._now, self._lease
        for done, update in enumerate(piece):
            if now() > lease.until:
                raise lease.reason()
            try:
                on_update(update)
            except Exception as error:  # noqa: BLE001 - as above
                return Failure(done, error)
        return None

    def _isolate(self, batch: UpdateBatch, failure: Failure) -> list[DeadUpdate]:
        """Works through the pieces of a batch that failed as a whole, in order."""
        dead: list[DeadUpdate] = []
        pieces = self._pieces(replace(batch, redelivered=True), failure, dead)
        while pieces:
            piece = pieces.pop()
            again = self._run(piece)
            if again is not None:
                pieces.extend(self._pieces(piece, again, dead))
        return dead

    def _pieces(self, piece: UpdateBatch, failure: Failure, dead: list[DeadUpdate]) -> list[UpdateBatch]:
        """What is left to do of a piece that failed, the first part last; settles an update that stands alone."""
        rest = piece[failure.done :]
        self._refuse_broken(rest, failure.error)
        if self._batches and len(rest) > 1:
            middle = len(rest) // 2
            return [rest[middle:], rest[:middle]]
        given_up = self._tried_again(rest[:1], failure.error)
        if given_up is not None:
            dead.append(given_up)
        return [rest[1:]] if len(rest) > 1 else []

    def _tried_again(self, update: UpdateBatch, error: Exception) -> DeadUpdate | None:
        """One update that failed once: None if it was processed after all."""
        attempts = 1
        while self._policy.tries_again(attempts):
            self._pause(attempts)
            failure = self._run(update)
            if failure is None:
                return None
            attempts += 1
            error = failure.error
            self._refuse_broken(update, error)
        if self._policy.then == "stop":
            raise self._failed(update, error) from error
        return DeadUpdate(update.data, shown(error), attempts)

    def _refuse_broken(self, piece: UpdateBatch, error: Exception) -> None:
        self._lease.check()  # what a session's end made fail is no failure of the application
        if isinstance(error, BROKEN):
            raise self._failed(piece, error) from error

    def _failed(self, piece: UpdateBatch, error: Exception) -> ApplicationFailed:
        position = f"{piece.line}@{piece.first}"
        return ApplicationFailed(application=self._name, position=position, reason=shown(error))


def shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]
