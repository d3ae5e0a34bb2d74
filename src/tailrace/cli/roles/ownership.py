"""A publisher's claim on its datasets: one owner at a time, each with a greater epoch than the one before.

The claim hangs on a session whose lease is lost when the process was stopped for too long. Then the names are claimed
anew, at once or not at all: while somebody else has them, this process must not go on as if it did. If an epoch follows
the old one at once, nobody owned the dataset in between, and nothing that this process knows has changed: it goes on.
(Its old epoch stays its own: nobody else was ever given it, and all later ones are greater.)
Otherwise another publisher was the owner for a while, and what this one holds in memory is out of date: it starts over.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from threading import Event
from typing import Final

from tailrace.cli.roles.assembly import Assembly
from tailrace.coordination.interface import LEASE_S, Claim, Session, Topic
from tailrace.errors import TailraceError, Unavailable
from tailrace.runtime.clock import Deadline
from tailrace.runtime.logging import get_log
from tailrace.runtime.tasks import Workers

log = get_log(__name__)

CLAIM_PATIENCE_S: Final = 2 * LEASE_S  # an owner that is gone has lost its lease by then
_RETRY_S: Final = 0.5


class Ownership:
    """Holds the claims on some datasets until the assembly ends."""

    def __init__(self, assembly: Assembly, datasets: Sequence[str]) -> None:
        self._assembly = assembly
        self._coordinator = assembly.coordinator()
        self._datasets = tuple(datasets)
        self._changed = Event()
        self._session, self._claims = self._claimed(CLAIM_PATIENCE_S)
        self._epochs = {dataset: claim.epoch for dataset, claim in self._claims.items()}
        self._workers = Workers("ownership", clock=assembly.clock)
        assembly.stack.callback(self._close)
        assembly.readiness.add("ownership", self._not_ready)
        self._workers.start("keeper", self._keep)

    def epoch(self, dataset: str) -> int:
        """The epoch of the first claim, which stays this owner's however often it claims anew."""
        return self._epochs[dataset]

    def _claimed(self, patience_s: float) -> tuple[Session, dict[str, Claim]]:
        session = self._coordinator.open_session(f"{socket.gethostname()}:{os.getpid()}")
        session.on_lost(self._changed.set)
        try:
            return session, {dataset: self._claim(session, dataset, patience_s) for dataset in self._datasets}
        except BaseException:
            session.close()
            raise

    def _claim(self, session: Session, dataset: str, patience_s: float) -> Claim:
        """Waits for the last owner to be gone, as long as its lease may take at the start."""
        name = f"publisher/{dataset}"
        deadline = Deadline(patience_s, self._assembly.clock)
        watch = self._coordinator.watch(Topic("claim", name))
        try:
            while not self._assembly.stopping.is_set():
                claim = session.claim(name)
                if claim is not None:
                    return claim
                if deadline.passed():
                    break
                watch.wait(_RETRY_S)
        finally:
            watch.close()
        holder = self._coordinator.holder(name)
        who = holder.session_name if holder else "which is gone now"
        raise Unavailable(
            reason=f"dataset {dataset!r} is published by another process, {who}; "
            "stop that one, or give this one a data folder of its own"
        )

    def _keep(self) -> None:
        """Waits for the session to be lost, and claims anew."""
        while not self._workers.stop.is_set():
            self._assembly.clock.wait(self._changed)
            self._changed.clear()
            if self._workers.stop.is_set():
                return
            before = self._claims
            try:
                self._session, now = self._claimed(patience_s=0.0)
            except TailraceError as error:
                self._assembly.restart(f"the claims were lost and not had again: {error}")
                return
            log.warning("claimed anew after the lease ran out", datasets=",".join(now))
            passed = [name for name in now if now[name].epoch != before[name].epoch + 1]
            if passed:
                self._assembly.restart(f"another publisher has owned {', '.join(passed)} in between")
                return
            self._claims = now

    def _not_ready(self) -> list[str]:
        return self._workers.not_ready() + ([] if self._session.lease_left_s() > 0 else ["the lease ran out"])

    def _close(self) -> None:
        self._workers.stop.set()
        self._changed.set()
        self._workers.join()
        self._session.close()
