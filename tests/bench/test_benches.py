"""Each bench at a tiny size: it runs, ends, leaves nothing, and gives the figures that its table names.

Its figures mean nothing at this size, so only what holds at any speed is asserted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.bench import decode, fanout, filters, latency, subscriber
from tailrace.bench.filters import FILTERS
from tailrace.bench.folders import bench_folder
from tailrace.bench.results import BenchResult
from tailrace.updates.filters import Filter

LOG_BYTES = 3_000_000


class Told:
    """A progress callback that keeps what it was told."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def __call__(self, text: str, share: float) -> None:
        assert text
        self.shares.append(share)


@pytest.fixture
def told() -> Told:
    return Told()


def figures_of(result: BenchResult, told: Told) -> dict[str, float]:
    assert told.shares == sorted(told.shares)
    assert 0 <= told.shares[0] <= told.shares[-1] <= 1
    assert result.notes
    assert [name for name, value in result.figures.items() if not value > 0] == []
    return dict(result.figures)


def test_decode(tmp_path: Path, told: Told) -> None:
    result = decode.measure(decode.Size(LOG_BYTES, rounds=1), tmp_path, told)
    figures = figures_of(result, told)
    assert sorted(figures) == ["gb_s_1kb", "gb_s_200b", "updates_s_1kb", "updates_s_200b"]
    assert result.peers["read_gb_s"] > 0


def test_filters(tmp_path: Path, told: Told) -> None:
    result = filters.measure(filters.Size(LOG_BYTES, rounds=1), tmp_path, told)
    figures = figures_of(result, told)
    assert sorted(figures) == ["mask_ns_per_row", "masks_to_decode", "materialise_to_decode", "passed_share"]
    assert 0 < figures["passed_share"] < 1


def test_the_filters_are_twenty_and_all_differ() -> None:
    assert len({Filter.parse(text) for text in FILTERS}) == 20


def test_subscriber(tmp_path: Path, told: Told) -> None:
    result = subscriber.measure(subscriber.Size(LOG_BYTES, rounds=1), tmp_path, told)
    assert sorted(figures_of(result, told)) == ["ratio_to_bare_flight", "updates_s", "updates_s_callback"]
    assert result.peers["bare_flight_updates_s"] > 0


def test_fanout(tmp_path: Path, told: Told) -> None:
    size = fanout.Size(LOG_BYTES, (1, 2), rounds=1, rounds_of_fewer=1, stopped_s=0.1)
    result = fanout.measure(size, tmp_path, told)
    assert sorted(figures_of(result, told)) == [
        "delivered_mb_s",
        "n_1.delivered_mb_s",
        "n_1.replay_s",
        "n_2.delivered_mb_s",
        "n_2.replay_s",
        "publisher_rss_anon_mb",
        "ratio_to_bare_flight",
        "stopped.publisher_rss_anon_mb",
        "stopped.replay_of_others_s",
        "stopped.seconds",
    ]
    assert result.figures["delivered_mb_s"] == result.figures["n_2.delivered_mb_s"]
    assert [plot.title for plot in result.plots] == ["Throughput of one publisher", "Time to replay the log"]


def test_latency(tmp_path: Path, told: Told) -> None:
    size = latency.Size(writes_s=200, warm_up_s=0.5, measured_s=1.0)
    result = latency.measure(size, tmp_path, told)
    figures = figures_of(result, told)
    assert figures["updates"] == 200
    assert figures["p50_ms"] <= figures["p90_ms"] <= figures["p99_ms"] <= figures["p99_5_ms"] <= figures["max_ms"]
    assert figures["since_due.max_ms"] >= figures["since_due.p50_ms"]
    assert {"writes_s", "writer_late_ms_p99", "answer_ms_p99"} <= figures.keys()
    assert result.peers["fsync_p50_ms"] <= result.peers["fsync_p99_ms"]


def test_quick_and_full_runs_measure_the_same_things() -> None:
    assert fanout.QUICK.applications == fanout.FULL.applications == (1, 2, 5, 10, 20)
    assert fanout.FULL.log_bytes >= 1_000_000_000
    assert (latency.FULL.writes_s, latency.FULL.warm_up_s, latency.FULL.measured_s) == (5_000, 5, 20)
    assert latency.QUICK.writes_s == 5_000


def test_a_bench_folder_is_gone_afterwards(tmp_path: Path) -> None:
    with bench_folder(tmp_path / "below") as folder:
        (folder / "log").write_text("x")
        assert folder.parent == tmp_path / "below"
    assert list((tmp_path / "below").iterdir()) == []
