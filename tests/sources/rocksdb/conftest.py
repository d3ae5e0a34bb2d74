"""Logs for tests, written by a real RocksDB: the C++ program in `fixture/`, and rocksdict."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sources.rocksdb.reading import Row, rows_of_text

_SOURCE = Path(__file__).parent / "fixture" / "write_log.cc"
_INSTRUCTIONS = "install a compiler and RocksDB's headers: apt-get install g++ librocksdb-dev"
_COMPILE_S = 120
_WRITE_S = 20

ScenarioWriter = Callable[[str], tuple[Path, list[Row]]]


def _compiled() -> Path:
    """The fixture's program, compiled once per version of its source."""
    version = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    program = Path(tempfile.gettempdir()) / f"tailrace-write-log-{os.getuid()}-{version}"
    if program.exists():
        return program
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail(f"g++ is missing; {_INSTRUCTIONS}")
    fresh = program.with_suffix(f".{os.getpid()}")
    command = [compiler, "-std=c++17", "-O0", "-o", str(fresh), str(_SOURCE), "-lrocksdb"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode:
        pytest.fail(f"the fixture does not compile; {_INSTRUCTIONS}\n{done.stderr}")
    os.replace(fresh, program)
    return program


@pytest.fixture(scope="session")
def write_scenario(tmp_path_factory: pytest.TempPathFactory) -> ScenarioWriter:
    """Writes a scenario of the C++ program: (folder, the rows that its log holds)."""
    program = _compiled()

    def write(scenario: str) -> tuple[Path, list[Row]]:
        folder = tmp_path_factory.mktemp(scenario) / "db"
        command = [str(program), scenario, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WRITE_S, check=False)
        assert done.returncode == 0, done.stderr
        return folder, rows_of_text(done.stdout)

    return write
