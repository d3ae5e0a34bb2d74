"""Roles in processes: their answers, their failures, and that none is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tailrace.bench.processes import RoleProcesses, ask_all
from tailrace.errors import ProcessFailed

ROLE = "tests.bench.roles:Counting"


def test_a_role_answers_in_a_process_of_its_own(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        role = processes.start("role", ROLE, start=5)
        role.ready()
        assert role.call("add", number=2) == 7
        assert role.call("pid") == role.pid != os.getpid()
    assert not psutil.pid_exists(role.pid)


def test_all_roles_are_asked_before_any_answer_is_awaited(tmp_path: Path) -> None:
    """Each waits at a barrier that opens for two."""
    barrier = tmp_path / "barrier"
    os.mkfifo(barrier)
    with RoleProcesses(tmp_path) as processes:
        roles = [processes.start(f"role-{number}", ROLE, start=number) for number in range(2)]
        for role in roles:
            role.ready()
        roles[0].ask("write", fifo=barrier)
        assert ask_all(roles[1:], "read", fifo=barrier) == ["met"]
        roles[0].answer()


def test_a_role_that_fails_shows_its_error_and_where(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        role = processes.start("role", ROLE, start=0)
        role.ready()
        with pytest.raises(ProcessFailed, match=r"(?s)role: ValueError: no such luck.*roles\.py"):
            role.call("fail")


def test_a_role_that_cannot_be_built_says_why(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes, pytest.raises(ProcessFailed, match="start is negative"):
        processes.start("role", ROLE, start=-1).ready()


def test_a_killed_role_is_an_error_not_a_wait(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        role = processes.start("role", ROLE, start=0)
        role.ready()
        role.signal(signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="role"):
            role.call("add", number=1)


def test_a_stopped_role_ends_too(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        role = processes.start("role", ROLE, start=0)
        role.ready()
        role.signal(signal.SIGSTOP)
    assert not psutil.pid_exists(role.pid)


def test_many_roles_are_processes_of_their_own_with_state_of_their_own(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        roles = processes.start_many("role", 3, ROLE, start=10)
        for role in roles:
            role.ready()
        assert [role.name for role in roles] == ["role-1", "role-2", "role-3"]
        assert [role.call("add", number=number) for number, role in enumerate(roles)] == [10, 11, 12]
        assert ask_all(roles, "pid") == [role.pid for role in roles]
        assert len({role.pid for role in roles}) == 3
    assert [role.pid for role in roles if psutil.pid_exists(role.pid)] == []


def test_one_of_many_fails_alone(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        first, second = processes.start_many("role", 2, ROLE, start=0)
        first.ready()
        second.ready()
        with pytest.raises(ProcessFailed, match=r"(?s)role-1: ValueError: no such luck.*roles\.py"):
            first.call("fail")
        assert second.call("add", number=4) == 4


def test_a_killed_one_of_many_is_noticed_while_the_others_live(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        first, second = processes.start_many("role", 2, ROLE, start=0)
        first.ready()
        second.ready()
        first.signal(signal.SIGKILL)
        with pytest.raises(ProcessFailed, match="role-1"):
            first.call("add", number=1)
        assert second.call("add", number=4) == 4


def test_a_role_that_has_threads_is_not_forked(tmp_path: Path) -> None:
    with RoleProcesses(tmp_path) as processes:
        roles = processes.start_many("role", 2, "tests.bench.roles:Threaded")
        with pytest.raises(ProcessFailed, match="has 2 threads before it was forked"):
            roles[0].ready()
