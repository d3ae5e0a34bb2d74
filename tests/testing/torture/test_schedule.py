"""Faults are planned from the seed, each kind soon and often enough."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing.torture.report import problems_of
from tailrace.testing.torture.schedule import KINDS, plan_faults

FINE = {
    "written": 30_000, "seconds": 60.0, "lost": 0, "out_of_order": 0, "after_handover": 0, "corrupt": 0,
    "loss_notices": 0, "faults": dict.fromkeys(KINDS, 1), "examples": [], "unexpected": [],
}  # fmt: skip


def test_there_are_kills_and_stops_of_each_role_and_three_faults_of_each_connection() -> None:
    assert len(KINDS) == len(set(KINDS)) == 15


@given(st.integers(0, 2**32), st.floats(20, 600))
def test_every_kind_occurs_and_never_more_than_three_seconds_apart(seed: int, seconds: float) -> None:
    faults = plan_faults(seed, seconds)
    assert {fault.kind for fault in faults} == set(KINDS)
    beginnings = [0.0, *(fault.at_s for fault in faults), seconds]
    assert max(later - earlier for earlier, later in itertools.pairwise(beginnings)) < 3
    for fault, following in itertools.pairwise(faults):
        assert fault.at_s + fault.lasts_s < following.at_s


def test_the_same_seed_plans_the_same_faults() -> None:
    assert plan_faults(1, 60) == plan_faults(1, 60)
    assert plan_faults(1, 60) != plan_faults(2, 60)


def test_a_run_without_problems_passes() -> None:
    assert problems_of(**FINE) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lost": 2}, "2 lost"),
        ({"out_of_order": 1}, "1 out of order"),
        ({"after_handover": 3}, "3 from a session that was over"),
        ({"corrupt": 1}, "1 corrupt"),
        ({"loss_notices": 1}, "1 loss notices although nothing was truncated"),
        ({"written": 29_000}, "483 updates/s written, fewer than 500"),
        ({"faults": {**FINE["faults"], "kill store": 0}}, "these faults did not occur: kill store; let it run longer"),
        ({"unexpected": ["store ended by itself"]}, "store ended by itself"),
    ],
)
def test_each_of_these_fails_a_run(change: dict[str, object], problem: str) -> None:
    assert problems_of(**{**FINE, **change}) == [problem]
