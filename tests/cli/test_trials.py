"""`demo`, `bench` and `torture` end as they should, and speak plainly in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.bench.registry import BENCHES, Bench
from tailrace.bench.results import BenchOptions, BenchResult, Progress
from tailrace.testing.torture.report import TortureReport
from tests.cli.conftest import Tailrace, in_a_process


def test_the_demo_ends_by_itself_and_leaves_nothing_behind() -> None:
    said = in_a_process("demo", "--seconds", "5")
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == "the demo has ended; its data is gone"
    assert "\x1b" not in said.out
    assert "slow " in said.out


def test_bench_lists_what_there_is(tailrace: Tailrace) -> None:
    assert [line.split("\t")[0] for line in tailrace("bench").lines] == ["name", *BENCHES]


def test_the_last_line_of_a_bench_is_its_json(
    tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(options: BenchOptions, progress: Progress) -> BenchResult:
        progress("measuring", 0.5)
        return BenchResult("decode", {"n_1.mb_s": 12.0, "quick": float(options.quick)}, {"mb_s": 350.0}, {"bare": 2.0})

    monkeypatch.setitem(BENCHES, "decode", Bench("decode", "a fake", run))  # type: ignore[arg-type]
    said = tailrace("bench", "decode", "--json", "--quick")
    assert said.code == 0
    assert json.loads(said.lines[-1]) == {
        "name": "decode",
        "figures": {"n_1": {"mb_s": 12.0}, "quick": 1.0},
        "paper": {"mb_s": 350.0},
        "peers": {"bare": 2.0},
    }
    assert "measuring" in said.err
    assert "here\tn_1.mb_s\t12.0" in tailrace("bench", "decode", "--record", tmp_path).out
    assert json.loads((tmp_path / "decode.json").read_text())["figures"] == {"n_1": {"mb_s": 12.0}, "quick": 0.0}


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["2 lost"], 1)])
def test_torture_exits_by_what_it_found(
    tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, problems: list[str], code: int
) -> None:
    report = TortureReport(
        seed=7, seconds=1.0, written=600, updates_s=600.0, lost=2, out_of_order=0, corrupt=0, duplicates=3,
        loss_notices=0, kills=1, faults={"kill": 1}, longest_gap_s=1.0, delivered={"a": 600}, caught_up_s=0.1,
        problems=problems,
    )  # fmt: skip
    monkeypatch.setattr("tailrace.cli.torture.run_torture", lambda options, tell, stop: report)
    said = tailrace("torture", "--seconds", "1", "--seed", "7", "--json")
    assert said.code == code
    assert said.json()["written"] == 600
    assert said.err.startswith("seed 7\n")
    assert ("error: 2 lost" in said.err) is bool(problems)
    assert tailrace("torture", "--seconds", "1").lines[-1] == ("FAILED" if problems else "passed")
