"""Every command and snippet in README and docs runs.

A block of `python` runs as it stands, each page's blocks one after the other in one namespace. A block of `sh` must use
targets that the Makefile has and commands that `tailrace` has. `<!-- not run: why -->` above a block excuses it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parent.parent
PAGES = [REPOSITORY / "README.md", REPOSITORY / "ARCHITECTURE.md", REPOSITORY / "CONTRIBUTING.md"]
PAGES += sorted((REPOSITORY / "docs").rglob("*.md"))


class Block(NamedTuple):
    page: Path
    language: str
    text: str
    line: int


def blocks(language: str) -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text() if page.exists() else ""
        for match in re.finditer(r"(<!-- not run: [^>]+-->\n)?^```(\w+)\n(.*?)^```", text, re.M | re.S):
            if match[2] == language and not match[1]:
                found.append(Block(page, language, match[3], text[: match.start()].count("\n") + 1))
    return found


def shell_commands() -> list[list[str]]:
    lines = [line.partition(" #")[0] for block in blocks("sh") for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if line.strip() and not line.startswith("#")]


def test_every_make_target_that_the_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.M))
    named = {command[1] for command in shell_commands() if command[0] == "make" and len(command) > 1}
    assert named >= {"demo", "test"}
    assert sorted(named - targets) == []


def test_every_tailrace_command_that_the_docs_name_exists() -> None:
    named = sorted({command[1] for command in shell_commands() if command[0].endswith("tailrace") and len(command) > 1})
    tailrace = Path(sys.executable).parent / "tailrace"
    for command in named:
        found = subprocess.run([tailrace, command, "--help"], capture_output=True, text=True, timeout=30, check=False)
        assert found.returncode == 0, f"tailrace {command}: {found.stderr}"


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("python")}), ids=lambda page: page.name)
def test_the_python_blocks_of_a_page_run(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks("python"):
        if block.page == page:
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
