"""Rounds of replaying a log to several processes at once, through Tailrace or through bare Flight.

Every round: the server's gate is shut, all clients connect, the gate opens and the clock starts; it stops when the last
client has everything. Each round checks that each client got every update exactly once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.bench.measuring import warm_page_cache
from tailrace.bench.processes import RoleProcess, RoleProcesses, ask_all
from tailrace.bench.results import Progress
from tailrace.bench.subscribing import Received
from tailrace.bench.written import WrittenLog
from tailrace.errors import TailraceError

REPLAY_TIMEOUT_S = 240.0
WARM_UP_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class Round:
    """One replay: until when the last client had everything, and how many updates all of them received together."""

    seconds: float
    updates: int

    @property
    def updates_s(self) -> float:
        return self.updates / self.seconds


class Replays:
    """The processes of a replay, and their rounds."""

    def __init__(
        self,
        publisher: RoleProcess,
        address: str,
        bare: RoleProcess,
        bare_address: str,
        clients: Sequence[RoleProcess],
        logs: Mapping[str, WrittenLog],
    ) -> None:
        self.publisher = publisher
        self.clients = clients
        self.logs = logs
        self._bare = bare
        self._address = address
        self._bare_address = bare_address
        self._numbers = itertools.count(1)

    def tailrace(self, dataset: str, clients: int, *, callback: bool = False) -> Round:
        applications = self.connect(dataset, clients, callback=callback)
        riders = self.clients[: len(applications)]
        for rider in riders:
            rider.ask("finish", within_s=REPLAY_TIMEOUT_S)
        opened_at = self.publisher.call("open_gate")
        return self._round(dataset, [rider.answer() for rider in riders], opened_at)

    def connect(self, dataset: str, clients: int, *, callback: bool = False) -> list[str]:
        """New applications that ride and wait at the gate; one per client."""
        self.publisher.call("shut_gate")
        number = next(self._numbers)
        applications = [f"round-{number}-{client}" for client in range(clients)]
        url, log = f"tailrace://{self._address}/{dataset}", self.logs[dataset]
        for client, application in zip(self.clients, applications, strict=False):
            client.ask("connect", url=url, application=application, log=log, callback=callback)
        for client in self.clients[:clients]:
            client.answer()
        self.publisher.call("wait_aboard", dataset=dataset, applications=applications)
        return applications

    def bare(self, log: str, clients: int) -> Round:
        self._bare.call("shut_gate")
        riders = self.clients[:clients]
        ask_all(riders, "connect_bare", address=self._bare_address, log=log)
        for rider in riders:
            rider.ask("finish_bare")
        opened_at = self._bare.call("open_gate")
        return self._round(log, [rider.answer() for rider in riders], opened_at)

    def warm_up(self, *, callback: bool = False) -> None:
        """Everything compiled and imported in every process, over a small log of the same kind."""
        self.tailrace("warm-up", len(self.clients))
        if callback:
            self.tailrace("warm-up", len(self.clients), callback=True)
        self.bare("warm-up", len(self.clients))

    def _round(self, log: str, received: Sequence[Received], opened_at: float) -> Round:
        expected = self.logs[log].updates
        wrong = [one.updates for one in received if one.updates != expected]
        if wrong:
            raise TailraceError(reason=f"{expected} updates are in the log, but clients received {wrong}")
        return Round(max(one.finished_at for one in received) - opened_at, expected * len(received))


def start_replays(
    processes: RoleProcesses, folder: Path, *, update_bytes: int, log_bytes: int, clients: int, progress: Progress
) -> Replays:
    """Writes the log, and starts the publisher, bare Flight and the clients, all of them warm."""
    progress("writing the log, starting processes", 0.0)
    writer = processes.start("log-writer", "tailrace.bench.logs:LogWriter")
    publisher = processes.start("publisher", "tailrace.bench.publishing:PublishingRole")
    bare = processes.start("bare-flight", "tailrace.bench.bare:BareFlightRole")
    subscribers = processes.start_many("application", clients, "tailrace.bench.subscribing:SubscribingRole")
    writer.ready()
    sizes = {"main": log_bytes, "warm-up": min(log_bytes, WARM_UP_BYTES)}
    logs: dict[str, WrittenLog] = {
        name: writer.call("write", folder=folder / name, update_bytes=update_bytes, log_bytes=size)
        for name, size in sizes.items()
    }
    processes.end(writer)
    for process in [publisher, bare, *subscribers]:
        process.ready()
    datasets = {name: log.folder for name, log in logs.items()}
    address = publisher.call("serve", datasets=datasets, data=folder / "publisher")
    for log in logs.values():  # RocksDB has moved log files by now; bare Flight reads them only afterwards
        warm_page_cache(log.folder)
    bare_address = bare.call("serve", logs=logs)
    return Replays(publisher, address, bare, bare_address, subscribers, logs)
