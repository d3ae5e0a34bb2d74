"""Everything that a torture run breaks: the processes, and the proxies between them.

```
writer ──▶ proxy ──▶ store ◀── proxy ◀── publisher ◀── proxy ◀── subscribers
```

Each process keeps its ports and its folder over all restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from tailrace.testing.ports import free_port
from tailrace.testing.processes import LocalProcess, ProcessFailed
from tailrace.testing.proxy import Direction, Proxy
from tailrace.testing.torture.commands import Addresses, Commands
from tailrace.testing.torture.content import TestApplication
from tailrace.testing.torture.schedule import Fault

READY_TIMEOUT_S: Final = 60.0  # kernels may have to be compiled
WRITER_END_S: Final = 30.0
STALLS: Final[tuple[Direction, ...]] = ("both", "up", "down")


class Cluster:
    """Use with `with`: all is started and ready inside, and gone afterwards."""

    def __init__(
        self,
        folder: Path,
        applications: Sequence[TestApplication],
        *,
        seed: int,
        rate_updates_s: float,
        sabotage: str | None = None,
    ) -> None:
        self.writes_file = folder / "writes"
        self.delivery_files = {
            application.name: [folder / f"{application.name}-{n}" for n in range(application.subscribers)]
            for application in applications
        }
        store_port, publisher_port = free_port(), free_port()
        self._links = {
            "writer-store": Proxy(("127.0.0.1", store_port)),
            "publisher-store": Proxy(("127.0.0.1", store_port)),
            "subscriber-publisher": Proxy(("127.0.0.1", publisher_port)),
        }
        addresses = Addresses(
            store_port=store_port,
            publisher_port=publisher_port,
            store_health_port=free_port(),
            publisher_health_port=free_port(),
            store_for_writer=self._links["writer-store"].address,
            store_for_publisher=self._links["publisher-store"].address,
            publisher_for_subscribers=self._links["subscriber-publisher"].address,
        )
        self._commands = Commands(folder, addresses, seed, sabotage)

        def process(name: str, argv: list[str]) -> LocalProcess:
            return LocalProcess(name, argv, folder / f"{name}.log")

        self._store = process("store", self._commands.store())
        self._publisher = process("publisher", self._commands.publisher())
        self._subscribers = [
            process(f"subscriber-{path.name}", self._commands.subscriber(name, path.name, path))
            for name, paths in self.delivery_files.items()
            for path in paths
        ]
        self._writer = process("writer", self._commands.writer(rate_updates_s, self.writes_file))
        self._killed: set[LocalProcess] = set()
        self._open = ExitStack()

    @property
    def processes(self) -> list[LocalProcess]:
        return [self._store, self._publisher, *self._subscribers, self._writer]

    def __enter__(self) -> Cluster:
        self._commands.write_configuration()
        with ExitStack() as stack:
            for link in self._links.values():
                stack.enter_context(link)
            for group in ([self._store], [self._publisher, self._writer, *self._subscribers]):
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
