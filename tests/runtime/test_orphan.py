from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace.runtime

SHIM = Path(tailrace.runtime.__file__).with_name("orphan.py")


def run(parent: int, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(SHIM), str(parent), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)


def test_it_becomes_the_program_with_its_arguments() -> None:
    assert run(os.getpid(), "echo", "a b", "c").stdout == "a b c\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals a parent's death")
def test_it_does_not_start_a_program_whose_parent_has_gone() -> None:
    ended = run(os.getpid() + 1, "echo", "orphan")
    assert (ended.stdout, ended.returncode) == ("", 127)


def test_a_program_that_is_not_there_is_named() -> None:
    ended = run(os.getpid(), "/no/such/program")
    assert (ended.stderr, ended.returncode) == ("/no/such/program: No such file or directory\n", 127)
