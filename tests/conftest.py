"""What holds for every test: one seed that is printed, and nothing left behind.

Leak checks compare what this process owns before and after each test: child processes, listening ports, and threads
that would keep it alive. What a wider fixture owns was there before the test, so it does not count until that fixture
ends; the check at the session's end counts everything.
"""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import settings

SEED_VARIABLE = "TAILRACE_TEST_SEED"
GRACE_S = 3.0
# They belong to multiprocessing and live as long as this process does.
LASTING_CHILDREN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

settings.register_profile("dev", print_blob=True, deadline=None, max_examples=50)
settings.register_profile("ci", print_blob=True, deadline=None, max_examples=100, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# The controller draws the seed; xdist's workers inherit it with the environment.
SESSION_SEED = int(os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**32))))


def pytest_report_header() -> str:
    profile = settings.get_current_profile_name()
    return f"seed: {SESSION_SEED} (repeat with {SEED_VARIABLE}={SESSION_SEED}), hypothesis profile: {profile}"


def test_seed(nodeid: str) -> int:
    """Each test's own seed: the same in any order and on any worker."""
    return SESSION_SEED ^ zlib.crc32(nodeid.encode())


test_seed.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for the test's randomness; a failing test prints how to have it again."""
    return test_seed(request.node.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        again = f"{SEED_VARIABLE}={SESSION_SEED} pytest '{item.nodeid}'"
        report.sections.append(("seed", f"this test's seed: {test_seed(item.nodeid)}; repeat with: {again}"))
    return report


class Belongings:
    """What this process owns at one moment, and what another moment has beyond it."""

    def __init__(self) -> None:
        me = psutil.Process()
        self.children = {child for child in me.children(recursive=True) if not _lasting(child)}
        self.ports = {c.laddr.port for c in me.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        self.threads = {thread for thread in threading.enumerate() if not thread.daemon}

    def left_since(self, before: Belongings) -> list[str]:
        processes = [f"process {_shown(child)}" for child in self.children - before.children]
        ports = [f"listening port {port}" for port in self.ports - before.ports]
        threads = [f"thread {thread.name!r}" for thread in self.threads - before.threads if thread.is_alive()]
        return sorted(processes + ports + threads)


def _lasting(child: psutil.Process) -> bool:
    try:
        command = " ".join(child.cmdline())
    except psutil.Error:
        return True  # gone already
    return any(name in command for name in LASTING_CHILDREN)


def _shown(child: psutil.Process) -> str:
    try:
        return f"{child.pid} ({' '.join(child.cmdline())[:120]}, {child.status()})"
    except psutil.Error:
        return f"{child.pid} (gone by now)"


def left_behind(before: Belongings, grace_s: float = GRACE_S) -> list[str]:
    """What outlives the test. The operating system has no event for a port's end, so this looks again for a while."""
    deadline = time.monotonic() + grace_s
    while (left := Belongings().left_since(before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Belongings()
    yield
    left = left_behind(before)
    if left:
        pytest.fail("left behind: " + ", ".join(left), pytrace=False)


_at_start: Belongings | None = None


def pytest_sessionstart() -> None:
    global _at_start
    _at_start = Belongings()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After the last fixture has ended. xdist's controller owns its workers, so it does not look."""
    if _at_start is None or getattr(session.config.option, "numprocesses", None):
        return
    left = left_behind(_at_start)
    if left:
        print(f"\nleft behind at the session's end: {', '.join(left)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
