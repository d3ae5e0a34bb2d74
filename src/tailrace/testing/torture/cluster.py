"""Everything that a torture run breaks: the processes, and the proxies between them.

```
writer ──▶ proxy ──▶ store ◀── proxy ◀── publisher ◀── proxy ◀── subscribers
```

Each process keeps its ports and its folder over all restarts. `Commands` is the one place that knows how a role is
started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from tailrace.testing.ports import free_port
from tailrace.testing.processes import LocalProcess, ProcessFailed
from tailrace.testing.proxy import Direction, Proxy
from tailrace.testing.torture.content import APPLICATIONS, DATASET
from tailrace.testing.torture.schedule import Fault

READY_TIMEOUT_S: Final = 60.0  # kernels may have to be compiled
WRITER_END_S: Final = 30.0
STALLS: Final[tuple[Direction, ...]] = ("both", "up", "down")
_ENTRY: Final = "tailrace.testing.torture"


@dataclass(frozen=True)
class Ports:
    store: int
    publisher: int


class Commands:
    """The argument list of each role."""

    def __init__(self, folder: Path, seed: int, sabotage: str | None) -> None:
        self._folder = folder
        self._seed = seed
        self._sabotage = sabotage

    def store(self, port: int) -> list[str]:
        return self._entry("store_process", str(self._folder / "store"), str(port))

    def publisher(self, port: int, advertised: str, store: str) -> list[str]:
        arguments = [str(self._folder / "publisher"), str(port), advertised, store, self._sabotage or "none"]
        return self._entry("publisher_process", *arguments)

    def subscriber(self, url: str, application: str, name: str, deliveries: Path) -> list[str]:
        return self._entry("subscriber_process", url, application, name, str(deliveries))

    def writer(self, store: str, rate_updates_s: float, writes: Path) -> list[str]:
        return self._entry("writer_process", store, str(self._seed), str(rate_updates_s), str(writes))

    @staticmethod
    def _entry(module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"{_ENTRY}.{module}", *arguments]


class Cluster:
    """Use with `with`: all is started and ready inside, and gone afterwards."""

    def __init__(self, folder: Path, seed: int, rate_updates_s: float, sabotage: str | None = None) -> None:
        self.writes_file = folder / "writes"
        self.delivery_files = {
            application.name: [folder / f"deliveries-{application.name}-{n}" for n in range(application.subscribers)]
            for application in APPLICATIONS
        }
        ports = Ports(free_port(), free_port())
        self._links = {
            "writer-store": Proxy(("127.0.0.1", ports.store)),
            "publisher-store": Proxy(("127.0.0.1", ports.store)),
            "subscriber-publisher": Proxy(("127.0.0.1", ports.publisher)),
        }
        commands = Commands(folder, seed, sabotage)
        served = self._links["subscriber-publisher"].address

        def process(name: str, argv: list[str]) -> LocalProcess:
            return LocalProcess(name, argv, folder / f"{name}.log")

        self._store = process("store", commands.store(ports.store))
        through = self._links["publisher-store"].address
        self._publisher = process(
            "publisher", commands.publisher(ports.publisher, served, f"store://{through}/{DATASET}")
        )
        self._subscribers = [
            process(path.name.replace("deliveries", "subscriber"), argv)
            for name, paths in self.delivery_files.items()
            for path in paths
            for argv in [commands.subscriber(f"tailrace://{served}/{DATASET}", name, path.name, path)]
        ]
        self._writer = process(
            "writer",
            commands.writer(
                f"store://{self._links['writer-store'].address}/{DATASET}", rate_updates_s, self.writes_file
            ),
        )
        self._killed: set[LocalProcess] = set()
        self._open = ExitStack()

    @property
    def processes(self) -> list[LocalProcess]:
        return [self._store, self._publisher, *self._subscribers, self._writer]

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            for link in self._links.values():
                stack.enter_context(link)
            for group in ([self._store], [self._publisher], self._subscribers, [self._writer]):
                for process in group:
                    stack.enter_context(process)
                for process in group:
                    process.wait_ready(READY_TIMEOUT_S)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    # ---- faults

    def begin(self, fault: Fault) -> None:
        if fault.action in ("kill", "stop"):
            process = self._process(fault)
            if fault.action == "stop":
                process.pause()
            else:
                process.kill()
                self._killed.add(process)
            return
        link = self._links[fault.target]
        acts: dict[str, Callable[[], None]] = {
            "cut": link.cut,
            "stall": lambda: link.stall(STALLS[int(fault.choice * len(STALLS))]),
            "half-open": lambda: link.half_open("client" if fault.choice < 0.5 else "target"),
        }
        acts[fault.action]()

    def end_fault(self, fault: Fault) -> None:
        if fault.action == "stop":
            self._process(fault).resume()
        elif fault.action == "kill":
            self._killed.discard(process := self._process(fault))
            process.start()
        else:
            self._links[fault.target].heal()

    def _process(self, fault: Fault) -> LocalProcess:
        if fault.target == "subscriber":
            return self._subscribers[int(fault.choice * len(self._subscribers))]
        return {"store": self._store, "publisher": self._publisher}[fault.target]

    def ended_by_themselves(self) -> list[str]:
        """Processes that are gone although nobody killed them."""
        return [
            str(ProcessFailed(process.name, f"ended by itself with code {process.exit_code}", process.log))
            for process in self.processes
            if not process.running and process not in self._killed
        ]

    # ---- the end

    def heal(self) -> None:
        """Everything runs and every connection passes; returns once the servers serve."""
        for link in self._links.values():
            link.heal()
        for process in self.processes:
            process.resume()
        for process in (self._store, self._publisher, *self._subscribers):
            process.wait_ready(READY_TIMEOUT_S)

    def end_writer(self) -> None:
        """It stops writing and waits for the answers that are due."""
        code = self._writer.terminate(WRITER_END_S)
        if code != 0:
            raise ProcessFailed("writer", f"ended with code {code}", self._writer.log)
        self._killed.add(self._writer)

    def end(self) -> list[str]:
        """All drain and end on SIGTERM, consumers first; those that do not are named."""
        problems = []
        for process in (*self._subscribers, self._publisher, self._store):
            try:
                code = process.terminate()
            except ProcessFailed as error:
                problems.append(str(error))
                continue
            if code != 0:
                problems.append(str(ProcessFailed(process.name, f"ended with code {code} on SIGTERM", process.log)))
        return problems
