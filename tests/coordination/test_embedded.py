from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from errno import EIO
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from threading import Event

import pytest
from tests.coordination.contract import WAIT_S, CoordinatorContract, until_claimed, until_empty

from tailrace.coordination.embedded import MAX_CHANGES_KEPT, EmbeddedCoordinator
from tailrace.coordination.interface import Coordinator, Topic
from tailrace.coordination.leases import LeaseFile
from tailrace.errors import CoordinatorUnavailable, VersionTooNew
from tailrace.runtime.clock import SystemClock
from tailrace.testing.clock import ManualClock


class PausableClock(SystemClock):
    """While it is paused, whoever waits on it goes on waiting: its threads stand still as a stopped process's do."""

    def __init__(self) -> None:
        self.running = Event()
        self.running.set()

    def wait(self, event: Event, timeout_s: float | None = None) -> bool:
        found = super().wait(event, timeout_s)
        self.running.wait()
        return found


class EmbeddedWorld:
    short_lease_s = 2.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clocks: dict[int, PausableClock] = {}
        self._opened = ExitStack()

    def connect(self) -> EmbeddedCoordinator:
        clock = PausableClock()
        coordinator = EmbeddedCoordinator(self._folder, clock=clock)
        self._clocks[id(coordinator)] = clock
        self._opened.callback(coordinator.close)
        return coordinator

    def pause(self, coordinator: Coordinator) -> None:
        self._clocks[id(coordinator)].running.clear()

    def resume(self, coordinator: Coordinator) -> None:
        self._clocks[id(coordinator)].running.set()

    def close(self) -> None:
        for clock in self._clocks.values():
            clock.running.set()
        self._opened.close()


class TestEmbedded(CoordinatorContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> Iterator[EmbeddedWorld]:
        world = EmbeddedWorld(tmp_path)
        yield world
        world.close()


# ---- several processes -----------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from threading import Event
from tailrace.coordination import EmbeddedCoordinator
coordinator = EmbeddedCoordinator(Path(sys.argv[1]))
session = coordinator.open_session("holder", lease_s=float(sys.argv[2]))
session.join("g", "holder")
print(session.claim("flow").epoch, flush=True)
session.lost.wait()
print("lost", session.lease_left_s(), flush=True)
"""

CONTENDER = """
import sys
from pathlib import Path
from tailrace.coordination import EmbeddedCoordinator, Topic
with EmbeddedCoordinator(Path(sys.argv[1])) as coordinator:
    session = coordinator.open_session("contender")
    watch = coordinator.watch(Topic("claim", "flow"))
    for _ in range(10):
        while (claim := session.claim("flow")) is None:
            assert watch.wait(10)
        record = coordinator.get("inside")
        assert record.value == b"nobody", record
        version = coordinator.put("inside", session.id.encode(), record.version, under=claim)
        coordinator.put("inside", b"nobody", version, under=claim)
        print(claim.epoch, flush=True)
        session.release(claim)
"""


@contextmanager
def process(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", program, *map(str, arguments)]
    started = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.wait(WAIT_S)
        assert started.stdout is not None
        started.stdout.close()


def line_of(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[EmbeddedCoordinator]:
    with EmbeddedCoordinator(tmp_path) as opened:
        yield opened


def test_a_killed_process_s_claims_are_free_long_before_its_lease_ends(
    tmp_path: Path, coordinator: EmbeddedCoordinator
) -> None:
    with process(HOLDER, tmp_path, 3600) as holder:
        assert line_of(holder) == "1"
        session = coordinator.open_session("standby")
        assert session.claim("flow") is None
        assert [member.id for member in coordinator.members("g")] == ["holder"]
        holder.send_signal(SIGKILL)
        assert until_claimed(session, coordinator, "flow").epoch == 2
        until_empty(coordinator, "g")


def test_a_stopped_process_s_claims_are_free_after_its_lease_and_it_learns_of_it(
    tmp_path: Path, coordinator: EmbeddedCoordinator
) -> None:
    with process(HOLDER, tmp_path, 2) as holder:
        assert line_of(holder) == "1"
        session = coordinator.open_session("standby")
        holder.send_signal(SIGSTOP)
        assert until_claimed(session, coordinator, "flow").epoch == 2
        holder.send_signal(SIGCONT)
        assert line_of(holder) == "lost 0.0"
    found = coordinator.holder("flow")
    assert found is not None
    assert found.session == session.id


def test_processes_that_contend_hold_a_claim_one_at_a_time(tmp_path: Path, coordinator: EmbeddedCoordinator) -> None:
    coordinator.create("inside", b"nobody")
    with ExitStack() as stack:
        contenders = [stack.enter_context(process(CONTENDER, tmp_path)) for _ in range(3)]
        epochs = [int(epoch) for contender in contenders for epoch in contender.communicate(timeout=20)[0].split()]
        assert [contender.returncode for contender in contenders] == [0, 0, 0]
    assert sorted(epochs) == list(range(1, 31))


# ---- time, files, disks ----------------------------------------------------------------------------------------


def test_a_jump_of_the_wall_clock_changes_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    with EmbeddedCoordinator(tmp_path, clock=clock) as one, EmbeddedCoordinator(tmp_path, clock=clock) as two:
        session = one.open_session("p1", lease_s=10)
        session.claim("flow")
        for jump_s in (-86_400, 200_000):
            clock.jump_wall(jump_s)
            assert session.lease_left_s() == 10
            assert two.open_session("p2").claim("flow") is None


def test_sessions_of_an_earlier_boot_are_over(tmp_path: Path) -> None:
    with EmbeddedCoordinator(tmp_path) as one:
        session = one.open_session("p1")
        session.join("g", "p1")
        before = session.claim("flow")
        assert before is not None
        with sqlite3.connect(tmp_path / "coordination.db") as raw:
            raw.execute("UPDATE sessions SET boot = 'an earlier one'")
        raw.close()
        with EmbeddedCoordinator(tmp_path) as two:
            assert two.members("g") == []
            after = two.open_session("p2").claim("flow")
            assert after is not None
            assert after.epoch == before.epoch + 1


def test_lease_files_that_belong_to_no_session_are_removed(tmp_path: Path) -> None:
    with EmbeddedCoordinator(tmp_path) as one:
        session = one.open_session("p1")
        (tmp_path / "sessions" / "stray").write_bytes(b"\0" * 9)
        with EmbeddedCoordinator(tmp_path):
            assert [file.name for file in (tmp_path / "sessions").iterdir()] == [session.id]
    assert list((tmp_path / "sessions").iterdir()) == []


def full_disk(is_full: Event) -> Callable[[], None]:
    def before_commit() -> None:
        if is_full.is_set():
            raise sqlite3.OperationalError("database or disk is full")

    return before_commit


def test_a_full_disk_refuses_changes_and_costs_nobody_a_lease(tmp_path: Path) -> None:
    is_full = Event()
    with EmbeddedCoordinator(tmp_path, before_commit=full_disk(is_full)) as coordinator:
        session = coordinator.open_session("p1", lease_s=2.0)
        assert session.claim("flow") is not None
        is_full.set()
        with pytest.raises(CoordinatorUnavailable, match="the disk is full"):
            coordinator.create("a", b"")
        assert session.lost.wait(2.5) is False
        assert session.lease_left_s() > 0
        assert coordinator.get("a") is None
        is_full.clear()
        assert coordinator.create("a", b"") is True


def test_a_process_that_stands_still_in_the_middle_of_a_change_is_reported(tmp_path: Path) -> None:
    with EmbeddedCoordinator(tmp_path, busy_timeout_s=0.05) as coordinator:
        session = coordinator.open_session("p1")
        other = sqlite3.connect(tmp_path / "coordination.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CoordinatorUnavailable, match="another process has held its lock"):
            session.claim("flow")
        assert coordinator.get("a") is None
        other.close()
        assert session.claim("flow") is not None


def test_a_keeper_that_cannot_do_its_work_is_not_ready_and_recovers(tmp_path: Path) -> None:
    is_full, failed_twice, failures = Event(), Event(), []

    def before_commit() -> None:
        if is_full.is_set():
            failures.append(1)
            if len(failures) == 2:
                failed_twice.set()
            raise sqlite3.OperationalError("database or disk is full")

    with EmbeddedCoordinator(tmp_path, before_commit=before_commit) as coordinator:
        is_full.set()
        with sqlite3.connect(tmp_path / "coordination.db") as raw:
            raw.execute("INSERT INTO sessions VALUES ('ghost', 'p9', '')")
            raw.execute("INSERT INTO members VALUES ('g', 'p9', '', 'ghost')")
        raw.close()
        assert failed_twice.wait(WAIT_S)
        assert [reason for reason in coordinator.not_ready() if "the disk is full" in reason]
        watch = coordinator.watch(Topic("members", "g"))
        is_full.clear()
        assert watch.wait(WAIT_S)
        assert coordinator.members("g") == []


def test_a_session_that_cannot_be_opened_leaves_nothing(tmp_path: Path) -> None:
    is_full = Event()
    with EmbeddedCoordinator(tmp_path, before_commit=full_disk(is_full)) as coordinator:
        is_full.set()
        with pytest.raises(CoordinatorUnavailable):
            coordinator.open_session("p1")
        assert list((tmp_path / "sessions").iterdir()) == []


def test_a_session_closed_while_the_disk_is_full_holds_nothing(tmp_path: Path) -> None:
    is_full = Event()
    with (
        EmbeddedCoordinator(tmp_path, before_commit=full_disk(is_full)) as one,
        EmbeddedCoordinator(tmp_path) as two,
    ):
        session = one.open_session("p1")
        session.join("g", "p1")
        session.claim("flow")
        is_full.set()
        session.close()
        assert two.members("g") == []
        assert until_claimed(two.open_session("p2"), two, "flow").epoch == 2
        is_full.clear()


def test_a_renewal_that_fails_is_tried_again_while_the_lease_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewing thread sees two failures of the file system; the lease outlives them."""
    failures: list[float] = []
    renew = LeaseFile.renew

    def renew_with_failures(lease: LeaseFile, now: float, lease_s: float) -> bool:
        if len(failures) < 2:
            failures.append(now)
            raise OSError(EIO, "Input/output error")
        return renew(lease, now, lease_s)

    monkeypatch.setattr(LeaseFile, "renew", renew_with_failures)
    with EmbeddedCoordinator(tmp_path) as coordinator:
        session = coordinator.open_session("p1", lease_s=4.0)
        assert session.lost.wait(4.5) is False
        assert len(failures) == 2
        assert session.lease_left_s() > 0


def test_a_folder_that_cannot_hold_leases_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions").touch()
    with pytest.raises(CoordinatorUnavailable, match="sessions"):
        EmbeddedCoordinator(tmp_path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    EmbeddedCoordinator(tmp_path).close()
    with sqlite3.connect(tmp_path / "coordination.db") as raw:
        raw.execute("UPDATE tailrace_format SET version = 99")
    raw.close()
    with pytest.raises(VersionTooNew, match="99"):
        EmbeddedCoordinator(tmp_path)


def test_a_process_that_missed_more_changes_than_are_kept_wakes_all_watches(tmp_path: Path) -> None:
    with EmbeddedCoordinator(tmp_path) as coordinator:
        watch = coordinator.watch(Topic("claim", "flow"))
        with sqlite3.connect(tmp_path / "coordination.db") as raw:
            rows = [("record", f"r{number}") for number in range(MAX_CHANGES_KEPT + 1)]
            raw.executemany("INSERT INTO changes (kind, name) VALUES (?, ?)", rows)
        raw.close()
        assert watch.wait(WAIT_S)


def test_changes_are_kept_within_their_limit(tmp_path: Path) -> None:
    with EmbeddedCoordinator(tmp_path) as coordinator:
        with sqlite3.connect(tmp_path / "coordination.db") as raw:
            rows = [("record", f"r{number}") for number in range(MAX_CHANGES_KEPT + 5)]
            raw.executemany("INSERT INTO changes (kind, name) VALUES (?, ?)", rows)
        coordinator.create("a", b"")
        assert raw.execute("SELECT count(*) FROM changes").fetchone() == (MAX_CHANGES_KEPT,)
        raw.close()
