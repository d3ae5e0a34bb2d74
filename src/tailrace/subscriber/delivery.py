"""Calling the application, and what follows when it raises.

An application of batches that raises is given the two halves of its batch in order, and so on down, until the update
that it fails on stands alone; an application of single updates tells by itself. That update is tried again as the error
policy says, and then either ends the subscription or becomes a dead letter, which this returns for the session to
bury. Nothing later is delivered meanwhile, so order holds. Its first error is logged with the application's own
traceback, unless it ends the subscription: then whoever waits for that gets it.
"""

from __future__ import annotations

import logging
import traceback
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

logger: Final = logging.getLogger(__name__)

BROKEN: Final = (StopSubscription, MemoryError)  # the application itself cannot go on, whatever the update
MAX_ERROR_TEXT: Final = 2000
SHOWN_FRAMES: Final = 3  # the innermost, in a dead letter

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class DeadUpdate:
    """An update that the application gave up on: one row, and its last error with the place of it."""

    data: pa.RecordBatch
    error: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The first `done` updates of a piece were processed, and the next call raised `error`."""

    done: int
    error: Exception


class Delivery:
    """One session's calls of the application.

    `pause` is told how many attempts failed, and how the last one did; it waits before another, or raises if there is
    none.
    """

    def __init__(
        self,
        application: Application,
        name: str,
        policy: ErrorPolicy,
        lease: Lease,
        clock: Clock,
        pause: Callable[[int, ApplicationFailed], None],
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
                failed[row] = located(failure.error)
        return failed

    def call(self, batchless: Callable[[], R], doing: str) -> R:
        """Calls the application for something else than updates: tried again by the policy, then it stops."""
        attempts = 0
        while True:
            self._lease.check()
            try:
                return batchless()
            except Exception as error:  # noqa: BLE001 - whatever it raises, the policy decides what follows
                failed = self._failed(doing, error)
            self._lease.check()
            attempts += 1
            if isinstance(failed.__cause__, BROKEN) or not self._policy.tries_again(attempts):
                raise failed
            self._wait_to_try_again(attempts, failed)

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
        attempts, place = 1, _place(update)
        while self._policy.tries_again(attempts):
            self._wait_to_try_again(attempts, self._failed(place, error))
            failure = self._run(update)
            if failure is None:
                return None
            attempts += 1
            error = failure.error
            self._refuse_broken(update, error)
        failed = self._failed(place, error)
        if self._policy.then == "stop":
            raise failed
        given_up = "given up after 1 attempt" if attempts == 1 else f"given up after {attempts} attempts"
        logger.warning("%s; %s, it becomes a dead letter", failed, given_up, exc_info=error if attempts == 1 else None)
        return DeadUpdate(update.data, located(error), attempts)

    def _wait_to_try_again(self, attempts: int, failed: ApplicationFailed) -> None:
        if attempts == 1:
            logger.warning("%s; it is tried again", failed, exc_info=failed.__cause__)
        self._pause(attempts, failed)

    def _refuse_broken(self, piece: UpdateBatch, error: Exception) -> None:
        self._lease.check()  # what a session's end made fail is no failure of the application
        if isinstance(error, BROKEN):
            raise self._failed(_place(piece), error)

    def _failed(self, doing: str, error: Exception) -> ApplicationFailed:
        failed = ApplicationFailed(application=self._name, position=doing, reason=shown(error))
        failed.__cause__ = error
        return failed


def _place(piece: UpdateBatch) -> str:
    return f"{piece.line}@{piece.first}"


def shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]


def located(error: Exception) -> str:
    """What `shown` says, and below it where in the application that happened."""
    inside = error.__traceback__ and error.__traceback__.tb_next  # its first frame is the one here that called
    stack = "".join(traceback.format_tb(inside, limit=-SHOWN_FRAMES)).rstrip()[-MAX_ERROR_TEXT // 2 :]
    return f"{shown(error)[: MAX_ERROR_TEXT - len(stack) - 1]}\n{stack}" if stack else shown(error)
