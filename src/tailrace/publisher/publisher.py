"""A publisher: the datasets that it serves, and the janitor that looks after their flows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from tailrace.publisher.dataset import DatasetPublisher
from tailrace.publisher.service import PublisherService
from tailrace.runtime.clock import Clock
from tailrace.runtime.tasks import Workers

TICK_S: Final = 0.2


class Publisher:
    """Owns the datasets' publishers from construction until `close`; its `service` is given to a wire server."""

    def __init__(
        self, datasets: Sequence[DatasetPublisher], *, address: str, clock: Clock, peers: Sequence[str] = ()
    ) -> None:
        self.datasets = tuple(datasets)
        self.service = PublisherService(datasets, address=address, peers=peers)
        self._clock = clock
        self._workers = Workers("publisher")
        self._workers.start("janitor", self._look_after, self._workers.stop)

    def _look_after(self, stop: threading.Event) -> None:
        while not self._clock.wait(stop, TICK_S):
            for dataset in self.datasets:
                dataset.tick()

    def not_ready(self) -> list[str]:
        """A readiness check: which datasets cannot be read, and what died."""
        problems = [f"{dataset.dataset}: {problem}" for dataset in self.datasets if (problem := dataset.problem())]
        return problems + self._workers.not_ready()

    def close(self) -> None:
        for dataset in self.datasets:
            dataset.close()
        self._workers.close()
