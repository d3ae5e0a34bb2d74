"""How long a subscriber may go on unheard."""

from __future__ import annotations

import pytest

from tailrace.errors import Fenced
from tailrace.subscriber.lease import Lease
from tailrace.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(monotonic=100.0)


@pytest.fixture
def lease(clock: ManualClock) -> Lease:
    lease = Lease(clock, sent_at=100.0)
    lease.opened(5.0)
    return lease


def test_it_counts_from_when_the_answered_sign_was_sent(lease: Lease, clock: ManualClock) -> None:
    clock.advance(4.0)  # 104
    lease.renew(sent_at=102.0)  # answered only now
    clock.advance(3.0)  # 107 = 102 + 5
    lease.check()
    clock.advance(0.1)
    with pytest.raises(Fenced):
        lease.check()


def test_an_older_answer_that_comes_late_does_not_shorten_it(lease: Lease, clock: ManualClock) -> None:
    clock.advance(4.0)
    lease.renew(sent_at=104.0)
    lease.renew(sent_at=101.0)
    clock.advance(4.5)
    lease.check()


def test_before_the_publisher_said_how_long_it_is_nothing_is_over(clock: ManualClock) -> None:
    unopened = Lease(clock, sent_at=100.0)
    clock.advance(1000.0)
    assert not unopened.over


def test_a_lease_that_was_taken_away_is_not_renewed(lease: Lease) -> None:
    lease.end(Fenced(what="it", reason="first"))
    lease.end(Fenced(what="it", reason="second"))
    lease.renew(sent_at=100.0)
    with pytest.raises(Fenced, match="first"):
        lease.check()


def test_a_lease_that_has_run_out_stays_so_however_late_an_answer_comes(lease: Lease, clock: ManualClock) -> None:
    clock.advance(5.1)
    lease.renew(sent_at=104.9)  # its publisher answered, and gave the flows to another one right after
    with pytest.raises(Fenced):
        lease.check()


def test_the_wall_clock_does_not_matter(lease: Lease, clock: ManualClock) -> None:
    clock.jump_wall(-3600.0)
    clock.jump_wall(7200.0)
    lease.check()
