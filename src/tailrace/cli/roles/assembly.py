"""What the parts of a role are built with, and how they ask for their end.

A role is an `ExitStack` of open things, closed in the reverse order. Some of what happens to a role is answered best by
building it anew from what is durable (its store was replaced, its ownership passed to another and came back): whoever
notices calls `restart`, and the process closes everything and starts over, within itself.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from tailrace.cli.configuration import Configuration
from tailrace.coordination.interface import Coordinator
from tailrace.runtime.clock import SYSTEM_CLOCK, Clock
from tailrace.runtime.health import Readiness
from tailrace.runtime.logging import get_log
from tailrace.runtime.metrics import Metrics

log = get_log(__name__)

STORE_FOLDER: Final = "store"
PUBLISHER_FOLDER: Final = "publisher"
COORDINATION_FOLDER: Final = "coordination"


@dataclass
class Assembly:
    """One build of a role. `stopping` is set when the process drains or when this build is to be replaced."""

    configuration: Configuration
    stopping: Event
    clock: Clock = SYSTEM_CLOCK
    stack: ExitStack = field(default_factory=ExitStack)
    readiness: Readiness = field(default_factory=Readiness)
    metrics: list[Metrics] = field(default_factory=list)
    restart_reason: str = ""
    _coordinator: Coordinator | None = None

    def restart(self, reason: str) -> None:
        """Asks for another build; the first reason counts."""
        if not self.restart_reason:
            log.warning("the role starts over", reason=reason)
            self.restart_reason = reason
        self.stopping.set()

    def folder(self, name: str) -> Path:
        return self.configuration.node.data_folder.resolve() / name

    def coordinator(self) -> Coordinator:
        """The node's coordinator, opened by whoever needs it first."""
        if self._coordinator is None:
            from tailrace.coordination.embedded import EmbeddedCoordinator

            opened = EmbeddedCoordinator(self.folder(COORDINATION_FOLDER), clock=self.clock)
            self.stack.callback(opened.close)
            self.readiness.add("coordination", opened.not_ready)
            self._coordinator = opened
        return self._coordinator
