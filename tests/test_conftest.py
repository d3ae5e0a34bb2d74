"""The leak checks and seeds that every other test relies on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent

LEAKS = {
    "process": "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])",
    "listening port": "keep.append(socket.create_server(('127.0.0.1', 0)))",
    "thread 'forgotten'": "threading.Thread(target=threading.Event().wait, args=(6,), name='forgotten').start()",
}


@pytest.mark.parametrize("what", LEAKS)
def test_a_test_that_leaves_something_behind_fails(what: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (tmp_path / "test_leak.py").write_text(
        "import socket, subprocess, sys, threading\nkeep = []\n"
        f"def test_leak():\n    global child\n    child = {LEAKS[what]}\n"
        "def test_end():\n    getattr(child, 'kill', int)(); getattr(child, 'wait', int)()\n"
    )
    found = run_pytest(tmp_path)
    assert found.returncode == 1, found.stdout
    assert f"left behind: {what}" in found.stdout


def test_a_failing_test_prints_its_seed_and_gets_it_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((REPOSITORY / "tests" / "conftest.py").read_text())
    (tmp_path / "test_seeded.py").write_text("def test_seeded(seed):\n    assert seed is None\n")
    first, again = run_pytest(tmp_path, TAILRACE_TEST_SEED="77"), run_pytest(tmp_path, TAILRACE_TEST_SEED="77")
    shown = [line for line in first.stdout.splitlines() if "this test's seed" in line]
    assert "TAILRACE_TEST_SEED=77 pytest" in shown[0]
    assert shown == [line for line in again.stdout.splitlines() if "this test's seed" in line]


def test_what_was_there_before_a_test_is_no_leak() -> None:
    lasting = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        before = conftest().Belongings()
        assert conftest().left_behind(before, grace_s=0) == []
    finally:
        done.set()
        thread.join()
        lasting.close()


def conftest() -> object:
    [module] = [m for name, m in sys.modules.items() if name.split(".")[-1] == "conftest" and hasattr(m, "Belongings")]
    return module


def run_pytest(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA", str(folder)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, timeout=50, check=False
    )
