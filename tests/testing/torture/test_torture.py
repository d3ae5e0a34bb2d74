"""The whole machinery: it passes on a sound publisher, and catches one that was made to lie."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import ConfigInvalid
from tailrace.testing.torture import TortureOptions, TortureReport, run_torture
from tailrace.testing.torture.commands import Commands
from tailrace.testing.torture.content import APPLICATIONS
from tailrace.testing.torture.run import Progress
from tailrace.testing.torture.sabotage import SKIPPED

QUIET_S = 1.5
# One subscriber is enough to see a lie, and starts sooner.
FEW = (replace(APPLICATIONS[0], subscribers=1),)


def tortured(folder: Path, **options: object) -> TortureReport:
    defaults = {"quiet_s": QUIET_S, "prepare": False, "kinds": (), "applications": FEW}
    return run_torture(TortureOptions(folder=folder, **{**defaults, **options}))  # type: ignore[arg-type]


def test_a_sound_system_loses_nothing_under_kills_stops_and_cuts(tmp_path: Path) -> None:
    told: list[Progress] = []
    kinds = ("kill publisher", "kill subscriber", "stop store", "cut writer-store", "half-open subscriber-publisher")
    options = TortureOptions(
        seconds=6, seed=5, folder=tmp_path, prepare=False, kinds=kinds, applications=(*FEW, APPLICATIONS[2])
    )
    report = run_torture(options, told.append)
    assert (report.lost, report.out_of_order, report.after_handover, report.corrupt, report.loss_notices) == (0,) * 5
    assert {kind for kind, count in report.faults.items() if count} == set(kinds)
    assert report.kills == report.faults["kill publisher"] + report.faults["kill subscriber"]
    assert report.delivered["everything"] >= report.written > 500 * 6
    [problem] = report.problems  # the kinds that were left out of this short run, and nothing else
    assert problem.startswith("these faults did not occur: kill store, ")
    assert report.exit_code == 1
    assert [told[0].phase, told[-1].phase] == ["starting", "checking"]
    assert told[-1].written == report.written


def test_a_publisher_that_skips_one_update_is_caught(tmp_path: Path) -> None:
    report = tortured(tmp_path, seconds=2, sabotage="skip")
    shard, number = SKIPPED
    assert f"everything: shard {shard} number {number} is lost" in report.problems
    assert report.lost == 1
    assert report.out_of_order == 0
    assert report.exit_code == 1


def test_a_publisher_that_swaps_two_updates_is_caught(tmp_path: Path) -> None:
    report = tortured(tmp_path, seconds=2, sabotage="swap")
    assert report.lost == 0
    assert report.out_of_order > 0
    assert report.exit_code == 1


def test_repeats_in_another_order_are_caught(tmp_path: Path) -> None:
    report = tortured(tmp_path, seconds=3, sabotage="swap-repeats", kinds=("kill subscriber",))
    assert report.lost == 0
    assert report.duplicates > 0
    assert report.out_of_order > 0
    assert report.exit_code == 1


def test_two_subscribers_that_both_have_the_flows_are_caught(tmp_path: Path) -> None:
    report = tortured(tmp_path, seconds=2, sabotage="share", applications=(APPLICATIONS[0],))
    assert (report.lost, report.out_of_order, report.corrupt) == (0, 0, 0)
    assert report.after_handover > 0
    assert f"{report.after_handover} from a session that was over" in report.problems


def test_a_folder_that_holds_something_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "writes").touch()
    with pytest.raises(ConfigInvalid, match=re.escape(f"{tmp_path}: is not empty; a run needs a folder that is new")):
        tortured(tmp_path, seconds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["writes"]
    with pytest.raises(ConfigInvalid, match="writes: cannot be used as a folder"):
        tortured(tmp_path / "writes", seconds=1)


@pytest.mark.parametrize("role", ["store", "publisher"])
def test_a_role_that_cannot_start_is_named_with_its_log(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_configuration = Commands.write_configuration

    def write_and_block(commands: Commands) -> None:
        write_configuration(commands)
        blocked = tmp_path / "data" / role
        blocked.parent.mkdir()
        blocked.write_text("a file where its folder should be")

    monkeypatch.setattr(Commands, "write_configuration", write_and_block)
    report = tortured(tmp_path, seconds=1)
    assert any(problem.startswith(f"{role}: ended with code") for problem in report.problems)
    assert report.exit_code == 1
