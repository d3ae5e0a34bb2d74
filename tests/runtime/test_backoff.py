from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime.backoff import Backoff, Retry


@given(attempt=st.integers(0, 10_000), seed=st.integers(0, 2**32))
def test_a_delay_lies_in_the_upper_half_of_its_bound(attempt: int, seed: int) -> None:
    backoff = Backoff(first_s=0.1, limit_s=8.0, factor=2.0)
    longest_s = 0.1 * 2**attempt if attempt < 7 else 8.0
    assert longest_s / 2 <= backoff.delay_s(attempt, Random(seed)) <= longest_s


def test_equal_seeds_give_equal_delays() -> None:
    first, second = Retry(random=Random(7)), Retry(random=Random(7))
    assert [first.failed() for _ in range(9)] == [second.failed() for _ in range(9)]


def test_a_success_starts_over() -> None:
    retry = Retry(Backoff(first_s=1.0, limit_s=64.0), Random(1))
    for _ in range(6):
        retry.failed()
    retry.succeeded()
    assert retry.attempts == 0
    assert retry.failed() <= 1.0


@pytest.mark.parametrize(("first_s", "limit_s", "factor"), [(0, 1, 2), (2, 1, 2), (1, 2, 0.5)])
def test_a_backoff_that_makes_no_sense_is_refused(first_s: float, limit_s: float, factor: float) -> None:
    with pytest.raises(ValueError, match="first_s <= limit_s"):
        Backoff(first_s, limit_s, factor)
