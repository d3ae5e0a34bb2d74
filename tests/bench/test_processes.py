"""Roles in processes: their answers, their failures, and that none is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tailrace.bench.processes import RoleProcess, RoleProcesses, ask_all
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
    role = RoleProcess("role", ROLE, tmp_path / "log.txt", start=0)
    role.ready()
    role.signal(signal.SIGSTOP)
    role.close()
    assert not psutil.pid_exists(role.pid)
