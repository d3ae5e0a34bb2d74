"""Bench `subscriber`: how fast one application takes updates (Wormhole, Figure 5).

One process, 500 B updates, no filter. `on_updates` counts batches' rows, beside bare Flight of the same batches to the
same process; `on_update` reads the key and one pair of every update.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.bench.folders import bench_folder
from tailrace.bench.measuring import median, ratio_of_rounds
from tailrace.bench.processes import RoleProcesses
from tailrace.bench.replays import Round, start_replays
from tailrace.bench.results import BenchOptions, BenchResult, Progress

UPDATE_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class Size:
    log_bytes: int
    rounds: int


FULL: Final = Size(1_500_000_000, rounds=7)
QUICK: Final = Size(600_000_000, rounds=5)


def run(options: BenchOptions, progress: Progress) -> BenchResult:
    with bench_folder(options.folder) as folder:
        return measure(QUICK if options.quick else FULL, folder, progress)


def measure(size: Size, folder: Path, progress: Progress) -> BenchResult:
    ours: list[Round] = []
    bare: list[Round] = []
    callback: list[Round] = []
    with RoleProcesses(folder) as processes:
        replays = start_replays(
            processes, folder, update_bytes=UPDATE_BYTES, log_bytes=size.log_bytes, clients=1, progress=progress
        )
        replays.warm_up(callback=True)
        for number in range(size.rounds):
            progress("on_updates, bare Flight, on_update", 0.3 + 0.7 * number / size.rounds)
            ours.append(replays.tailrace("main", 1))
            bare.append(replays.bare("main", 1))
            callback.append(replays.tailrace("main", 1, callback=True))
    figures = {
        "updates_s": median(one.updates_s for one in ours),
        "ratio_to_bare_flight": ratio_of_rounds([one.updates_s for one in ours], [one.updates_s for one in bare]),
        "updates_s_callback": median(one.updates_s for one in callback),
    }
    notes = (
        f"{size.log_bytes / 1e6:g} MB of {UPDATE_BYTES} B updates, no filter; median of {size.rounds} rounds, each of "
        "on_updates, bare Flight and on_update",
        "store, publisher and subscriber share the machine: decoding the log is part of what is measured",
    )
    return BenchResult(
        "subscriber",
        figures,
        paper={"updates_s": 600_000, "cpus": 4},
        peers={"bare_flight_updates_s": median(one.updates_s for one in bare)},
        notes=notes,
    )
