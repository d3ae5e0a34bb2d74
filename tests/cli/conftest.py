"""Commands as a user types them: in this process where that is the same, as real processes where it is not."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli import main
from tailrace.testing.ports import free_port
from tailrace.testing.processes import LocalProcess, tailrace_role

TIMEOUT_S = 50.0  # a machine may be busy; a command that hangs fails here, not at the test's limit


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


Tailrace = Callable[..., Said]


@pytest.fixture
def log_as_before() -> Iterator[None]:
    """A role's command sends the log to what stderr is during the test."""
    log = logging.getLogger("tailrace")
    handlers, propagate, level = list(log.handlers), log.propagate, log.level
    yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


@pytest.fixture
def tailrace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, log_as_before: None
) -> Tailrace:
    """Runs a command in this process, in an empty folder, without the developer's own environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "ADDRESS", "STORE", "CREDENTIAL", "CREDENTIAL_FILE", "CA_FILE", "LOG", "LOG_FORMAT"):
        monkeypatch.delenv(f"TAILRACE_{name}", raising=False)

    def run(*arguments: str | Path, **environment: str) -> Said:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["tailrace", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, said.out, said.err)

    return run


def in_a_process(*arguments: str | Path, given: str = "") -> Said:
    """Runs a command as a process of its own, with pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace.cli", *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@dataclass
class Node:
    """A running `tailrace run`, and how to reach it."""

    process: LocalProcess
    address: str
    health: str
    folder: Path

    @property
    def at(self) -> tuple[str, str]:
        return "--address", self.address

    @property
    def store(self) -> tuple[str, ...]:
        return "--store", self.address, "--address", self.address


def node_in(folder: Path, *more: str) -> Node:
    """The one-machine default on ports of its own; not started yet."""
    address, health = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    arguments = ["run", "--data", str(folder / "data"), "--listen", address, "--health", health, *more]
    return Node(tailrace_role("node", arguments, folder), address, health, folder)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all tests of a module; each uses tables and applications of its own."""
    found = node_in(tmp_path_factory.mktemp("node"))
    with found.process:
        found.process.wait_ready()
        yield found
