from __future__ import annotations

import pytest

from tailrace.bench.workload import rows, size_of


@pytest.mark.parametrize("size_bytes", [200, 500, 1000])
def test_every_update_has_exactly_its_size_and_four_pairs(size_bytes: int) -> None:
    made = list(rows(50, size_bytes))
    assert {size_of(row) for row in made} == {size_bytes}
    assert {tuple(pairs) for _, pairs in made} == {("user", "topic", "score", "body")}
    assert len({key for key, _ in made}) == 50


def test_the_same_seed_makes_the_same_updates() -> None:
    assert list(rows(20, 200, seed=1)) == list(rows(20, 200, seed=1))
    assert list(rows(20, 200, seed=1)) != list(rows(20, 200, seed=2))


def test_an_update_smaller_than_its_fixed_parts_is_refused() -> None:
    with pytest.raises(AssertionError, match="cannot have 20 bytes"):
        list(rows(1, 20))
