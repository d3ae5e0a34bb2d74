"""A lease never ends in a finder's eyes while its owner believes in it, wherever either of them is paused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.coordination.leases import LeaseFile, has_ended


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[LeaseFile]:
    opened = LeaseFile(tmp_path / "lease", ends_at=110.0)
    yield opened
    opened.close()


def test_a_lease_has_not_ended_before_its_moment(lease: LeaseFile) -> None:
    assert not has_ended(lease.path, 109.9)
    assert has_ended(lease.path, 110.0)


def test_renewing_prolongs_from_the_moment_before_the_call(lease: LeaseFile) -> None:
    assert lease.renew(105.0, 10.0)
    assert lease.ends_at == 115.0
    assert not has_ended(lease.path, 114.9)


def test_a_lease_that_has_run_out_is_not_renewed(lease: LeaseFile) -> None:
    assert not lease.renew(110.0, 10.0)
    assert lease.ends_at == 110.0


def test_a_lease_that_someone_found_ended_is_not_renewed(lease: LeaseFile) -> None:
    assert has_ended(lease.path, 110.0)
    assert not lease.renew(109.0, 10.0)  # the owner's thread had read its clock long ago


def test_a_closed_lease_has_ended(tmp_path: Path) -> None:
    opened = LeaseFile(tmp_path / "lease", ends_at=110.0)
    assert opened.exists()
    opened.close()
    assert has_ended(tmp_path / "lease", 0.0)


def test_a_file_without_its_owner_has_ended(tmp_path: Path) -> None:
    (tmp_path / "lease").write_bytes(b"\0\0\0\0\0\0\xf0\x7f\0")  # would last for ever
    assert has_ended(tmp_path / "lease", 0.0)


def test_a_file_that_its_owner_is_just_making_has_not_ended(tmp_path: Path) -> None:
    with (tmp_path / "lease").open("wb") as made:
        fcntl.flock(made, fcntl.LOCK_EX)
        assert not has_ended(tmp_path / "lease", 1e9)


def test_two_that_look_at_once_do_not_deceive_each_other(lease: LeaseFile) -> None:
    assert [has_ended(lease.path, 100.0) for _ in range(3)] == [False] * 3


class Interrupted:
    """Calls `other` in the middle of another call: before its `at`-th access to the file."""

    def __init__(self, at: int, other: Callable[[], None]) -> None:
        self._left = at
        self._other = other

    def wrap(self, access: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._other()
            return access(*arguments)

        return interrupted


@pytest.mark.parametrize("at", [1, 2, 3])
def test_the_owner_is_paused_while_renewing_and_found_ended(
    lease: LeaseFile, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    found: list[bool] = []
    pause = Interrupted(at, lambda: found.append(has_ended(lease.path, 112.0)))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pause.wrap(os.pwrite))
        patched.setattr(os, "pread", pause.wrap(os.pread))
        renewed = lease.renew(109.0, 10.0)
    if at == 3:  # the renewal makes two accesses
        found.append(has_ended(lease.path, 112.0))
    assert not (found[0] and lease.ends_at > 112.0)
    assert (renewed, found[0]) == {1: (False, True), 2: (True, False), 3: (True, False)}[at]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_finder_is_paused_while_the_owner_renews(lease: LeaseFile, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    renewed: list[bool] = []
    pause = Interrupted(at, lambda: renewed.append(lease.renew(109.0, 10.0)))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", pause.wrap(os.pwrite))
        patched.setattr(os, "pread", pause.wrap(os.pread))
        ended = has_ended(lease.path, 112.0)
    assert len(renewed) == 1
    assert not (ended and lease.ends_at > 112.0)
    assert not lease.renew(111.0, 10.0) or not ended
