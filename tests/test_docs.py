"""Every command and snippet in README and docs runs.

README's shell blocks run in their order in an empty folder, against a real node; only addresses are replaced by free
ones, and what goes on for ever is stopped at its first line. A block of `python` runs as a program, and must print the
write that was made before. Elsewhere `sh` blocks may use only targets that the Makefile has, and commands that
`tailrace` has. `<!-- not run: why -->` above a block excuses it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tailrace.testing.ports import free_port
from tailrace.testing.processes import LocalProcess

REPOSITORY = Path(__file__).parent.parent
README = REPOSITORY / "README.md"
PAGES = [README, *(REPOSITORY / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY", "CHANGELOG"))]
PAGES += sorted((REPOSITORY / "docs").rglob("*.md"))
TAILRACE = Path(sys.executable).parent / "tailrace"
COMMAND_S = 40


class Block(NamedTuple):
    page: Path
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        for match in re.finditer(r"(<!-- not run: [^>]+-->\n)?^```(\w+)\n(.*?)^```", page.read_text(), re.M | re.S):
            if match[2] == language and not match[1]:
                found.append(Block(page, language, match[3]))
    return found


def commands(block: Block) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
    return [line for line in lines if line]


def tailrace_commands(page: Path) -> list[list[str]]:
    """Their arguments, in order."""
    return [
        command[1:]
        for block in blocks("sh")
        if block.page == page
        for command in commands(block)
        if command[0].endswith("tailrace")
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The node that README starts with `tailrace run`; yields what commands need in their environment to find it."""
    folder = tmp_path_factory.mktemp("readme")
    assert ["run"] in tailrace_commands(README)
    address = f"127.0.0.1:{free_port()}"
    place = ["--data", str(folder / "tailrace-data"), "--listen", address, "--health", f"127.0.0.1:{free_port()}"]
    with LocalProcess("node", [str(TAILRACE), "run", *place], folder / "node.log") as process:
        process.wait_ready()
        yield {**os.environ, "TAILRACE_ADDRESS": address, "TAILRACE_STORE": address, "PYTHONUNBUFFERED": "1"}


def first_line(argv: list[str], environment: dict[str, str], wanted: str) -> str:
    """Starts what does not end by itself, waits until it prints a line that holds `wanted`, and ends it."""
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if wanted in line:
                return line
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    raise AssertionError(f"{argv} ended without {wanted!r}: {''.join(seen)}")


def test_readmes_commands_and_application_run(node: dict[str, str], tmp_path: Path) -> None:
    """The application comes before what shows the state of applications; else all in their order."""
    ran = set()
    for arguments in tailrace_commands(README):
        ran.add(arguments[0])
        argv = [str(TAILRACE), *arguments]
        if arguments == ["run"]:
            continue  # it is the node
        if arguments == ["status", "--watch"]:
            assert "b'alice'" in first_line(application(node, tmp_path), node, "alice")
            first_line(argv, node, "invalidator")
        elif arguments[0] == "tail" and "--until" not in arguments:
            # From the start: what was written above, rather than what is still to come.
            first_line([*argv, "--from", "earliest"], node, "alice")
        else:
            found = subprocess.run(argv, env=node, capture_output=True, text=True, timeout=COMMAND_S, check=False)
            assert found.returncode == 0, f"{arguments}: {found.stdout}{found.stderr}"
    assert ran >= {"run", "put", "tail", "status"}


def application(node: dict[str, str], folder: Path) -> list[str]:
    """README's program, to be run."""
    [program] = [block.text for block in blocks("python") if block.page == README]
    file = folder / "application.py"
    file.write_text(program.replace("localhost:7400", node["TAILRACE_ADDRESS"]))
    return [sys.executable, str(file)]


@pytest.mark.parametrize("block", [one for one in blocks("python") if one.page != README], ids=lambda one: one[0].stem)
def test_every_program_in_the_docs_runs(block: Block, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", block.text]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert ran.returncode == 0, ran.stderr


def test_every_make_target_that_the_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.M))
    of_make = [command for block in blocks("sh") for command in commands(block) if command[0] == "make"]
    named = {command[1] for command in of_make if len(command) > 1}
    assert named >= {"demo", "test"}
    assert sorted(named - targets) == []


def test_every_tailrace_command_that_the_docs_name_exists() -> None:
    named = {arguments[0] for page in PAGES for arguments in tailrace_commands(page)}
    named |= {name for page in PAGES for name in re.findall(r"`tailrace ([a-z]+)", page.read_text())}
    assert named >= {"run", "put", "tail", "torture", "bench"}
    known = subprocess.run([TAILRACE, "--help"], capture_output=True, text=True, timeout=COMMAND_S, check=True).stdout
    assert sorted(name for name in named if not re.search(rf"^\s+{name} ", known, re.M)) == []


def test_every_configuration_in_the_docs_is_accepted(tmp_path: Path) -> None:
    """`check` may find that its datastore is not here, but no key or value wrong."""
    from tailrace.cli.configuration import load_configuration

    found = blocks("toml")
    assert found
    for number, block in enumerate(found):
        tomllib.loads(block.text)
        file = tmp_path / f"{number}.toml"
        file.write_text(block.text)
        load_configuration(file)
