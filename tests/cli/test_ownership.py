"""A publisher owns its datasets while its lease lasts, and knows whether anyone else did in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tailrace.cli.configuration import NodeSettings, one_machine, with_changes
from tailrace.cli.roles import ownership
from tailrace.cli.roles.assembly import COORDINATION_FOLDER, Assembly
from tailrace.cli.roles.ownership import Ownership
from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.coordination.interface import LEASE_S, Topic
from tailrace.errors import Unavailable
from tailrace.runtime.clock import SystemClock

DEADLINE_S = 15.0
NAME = "publisher/demo"


class SuspendedClock(SystemClock):
    """Real time, and the time for which the machine was suspended."""

    def __init__(self) -> None:
        self.suspended_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.suspended_s


@pytest.fixture
def clock() -> SuspendedClock:
    return SuspendedClock()


@pytest.fixture
def assembly(tmp_path: Path, clock: SuspendedClock) -> Iterator[Assembly]:
    configuration = with_changes(one_machine(), {"node": NodeSettings(data_folder=tmp_path)})
    found = Assembly(configuration, Event(), clock=clock)
    with found.stack:
        yield found


@pytest.fixture
def another(tmp_path: Path, clock: SuspendedClock, assembly: Assembly) -> Iterator[EmbeddedCoordinator]:
    with EmbeddedCoordinator(tmp_path / COORDINATION_FOLDER, clock=clock) as coordinator:
        yield coordinator


def test_each_owner_has_a_greater_epoch_than_the_one_before(tmp_path: Path, assembly: Assembly) -> None:
    with assembly.stack:
        assert Ownership(assembly, ["demo"]).epoch("demo") == 1
    again = Assembly(assembly.configuration, Event())
    with again.stack:
        assert Ownership(again, ["demo"]).epoch("demo") == 2


def test_a_dataset_that_is_owned_is_refused_once_patience_ends(
    assembly: Assembly, another: EmbeddedCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "CLAIM_PATIENCE_S", 0.1)
    another.open_session("the other").claim(NAME)
    with pytest.raises(Unavailable, match="published by another process, the other"):
        Ownership(assembly, ["demo"])


def test_an_owner_that_was_suspended_goes_on_if_nobody_took_over(
    assembly: Assembly, clock: SuspendedClock, another: EmbeddedCoordinator
) -> None:
    owner = Ownership(assembly, ["demo"])
    watch = another.watch(Topic("claim", NAME))
    clock.suspended_s += 2 * LEASE_S
    while (holder := another.holder(NAME)) is None or holder.epoch != 2:
        assert watch.wait(DEADLINE_S), f"the holder stayed {holder}"
    assert owner.epoch("demo") == 1, "the epoch under which it sends is its own, and below all that come"
    assert not assembly.stopping.wait(0.2)


def test_an_owner_whose_dataset_was_anothers_meanwhile_starts_over(
    assembly: Assembly, clock: SuspendedClock, another: EmbeddedCoordinator
) -> None:
    Ownership(assembly, ["demo"])
    clock.suspended_s += 2 * LEASE_S
    session = another.open_session("the other")
    claim = session.claim(NAME)
    assert claim is not None
    assert claim.epoch == 2
    session.close()
    assert assembly.stopping.wait(DEADLINE_S)
    assert assembly.restart_reason == "another publisher has owned demo in between"
