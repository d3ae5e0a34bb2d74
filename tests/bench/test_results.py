from __future__ import annotations

import pytest

from tailrace.bench.results import BenchResult, nested


def test_dotted_figures_nest() -> None:
    assert nested({"delivered_mb_s": 900.0, "n_1.delivered_mb_s": 300.0, "n_1.replay_s": 3.0}) == {
        "delivered_mb_s": 900.0,
        "n_1": {"delivered_mb_s": 300.0, "replay_s": 3.0},
    }


@pytest.mark.parametrize("figures", [{"n": 1.0, "n.x": 2.0}, {"n.x": 2.0, "n": 1.0}])
def test_a_name_cannot_be_a_figure_and_a_group(figures: dict[str, float]) -> None:
    with pytest.raises(AssertionError):
        nested(figures)


def test_figures_keep_five_digits_and_counts_stay_whole() -> None:
    result = BenchResult("x", {"ratio": 0.123456789, "updates_s": 2_345_678.9, "count": 7}, peers={"ns": 12.34567})
    assert result.as_json() == {
        "name": "x",
        "figures": {"ratio": 0.12346, "updates_s": 2_345_679, "count": 7},
        "paper": {},
        "peers": {"ns": 12.346},
    }
