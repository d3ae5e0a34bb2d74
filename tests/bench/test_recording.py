from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tailrace.bench.drawing import round_step, svg
from tailrace.bench.recording import record
from tailrace.bench.results import BenchResult, Plot

LINES = {"ours": [(1.0, 100.0), (20.0, 950.0)], "theirs & others": [(1.0, 350.0), (20.0, 350.0)]}
PLOT = Plot("Throughput", "applications", "MB/s", LINES)


def test_a_record_holds_the_result_and_where_it_was_measured(tmp_path: Path) -> None:
    result = BenchResult("fanout", {"n_1.delivered_mb_s": 5.0}, {"delivered_mb_s": 350}, notes=("why",), plots=(PLOT,))
    files = record(result, tmp_path, quick=True)
    assert [path.name for path in files] == ["fanout.json", "fanout-1.svg"]
    kept = json.loads(files[0].read_text())
    assert kept["figures"] == {"n_1": {"delivered_mb_s": 5.0}}
    assert kept["paper"] == {"delivered_mb_s": 350}
    assert kept["notes"] == ["why"]
    assert kept["quick"] is True
    assert kept["machine"]["cores"] >= 1


def test_a_plot_is_well_formed_and_has_every_line() -> None:
    root = ET.fromstring(svg(PLOT))
    lines = root.findall("{*}polyline")
    assert len(lines) == 2
    assert "theirs & others" in [text.text for text in root.findall("{*}text")]


def test_points_lie_where_the_axes_say() -> None:
    root = ET.fromstring(svg(Plot("t", "x", "y", {"one": [(0.0, 0.0), (10.0, 100.0)]})))
    assert root.findall("{*}polyline")[0].attrib["points"] == "70.0,310.0 620.0,40.0"


def test_a_logarithmic_axis_runs_over_whole_powers_of_ten() -> None:
    root = ET.fromstring(svg(Plot("t", "ms", "%", {"one": [(0.5, 0.0), (5.0, 50.0), (50.0, 100.0)]}, log_x=True)))
    texts = [text.text for text in root.findall("{*}text")]
    assert [tick for tick in ("0.1", "1", "10", "100") if tick not in texts] == []


@pytest.mark.parametrize(("step", "rounded"), [(0.3, 0.5), (1.0, 1.0), (1.1, 2.0), (70.0, 100.0), (0.0, 1.0)])
def test_ticks_are_one_two_or_five_times_a_power_of_ten(step: float, rounded: float) -> None:
    assert round_step(step) == pytest.approx(rounded)
