"""Bench `fanout`: 1 to 20 applications each replay the same log (Wormhole, Figure 4).

The publisher is a process that holds store and publisher; each application is a process of its own and counts what it
gets. With 20 applications, rounds alternate with bare Flight of the same batches to the same processes. Last, one of
the 20 is stopped (`SIGSTOP`) while the others replay: the publisher's memory must stay bounded, and the stopped one
must get the whole log after all, the others all of it once.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.bench.folders import bench_folder
from tailrace.bench.measuring import PeakMemory, median, ratio_of_rounds
from tailrace.bench.processes import RoleProcesses, ask_all
from tailrace.bench.replays import REPLAY_TIMEOUT_S, Replays, Round, start_replays
from tailrace.bench.results import BenchOptions, BenchResult, Plot, Progress
from tailrace.bench.subscribing import Received
from tailrace.errors import TailraceError

UPDATE_BYTES: Final = 1000
PAPER_MB_S: Final = 350


@dataclass(frozen=True, slots=True)
class Size:
    """`rounds` are those with all applications, `rounds_of_fewer` with each smaller number."""

    log_bytes: int
    applications: tuple[int, ...]
    rounds: int
    rounds_of_fewer: int
    stopped_s: float


FULL: Final = Size(1_000_000_000, (1, 2, 5, 10, 20), rounds=5, rounds_of_fewer=3, stopped_s=60)
QUICK: Final = Size(200_000_000, (1, 2, 5, 10, 20), rounds=3, rounds_of_fewer=1, stopped_s=5)


def run(options: BenchOptions, progress: Progress) -> BenchResult:
    with bench_folder(options.folder) as folder:
        return measure(QUICK if options.quick else FULL, folder, progress)


def measure(size: Size, folder: Path, progress: Progress) -> BenchResult:
    most = max(size.applications)
    with RoleProcesses(folder) as processes:
        replays = start_replays(
            processes, folder, update_bytes=UPDATE_BYTES, log_bytes=size.log_bytes, clients=most, progress=progress
        )
        replays.warm_up()
        mb_s: dict[int, float] = {}
        seconds: dict[int, float] = {}
        for number, count in enumerate(sorted(size.applications)[:-1]):
            progress(f"{count} applications", 0.2 + 0.05 * number)
            rounds = [replays.tailrace("main", count) for _ in range(size.rounds_of_fewer)]
            mb_s[count], seconds[count] = median(map(_mb_s, rounds)), median(one.seconds for one in rounds)
        ours, bare, peak_mb = _alternating(replays, most, size.rounds, progress)
        mb_s[most], seconds[most] = median(map(_mb_s, ours)), median(one.seconds for one in ours)
        progress("one application is stopped", 0.9)
        stopped = _with_one_stopped(replays, most, size.stopped_s)
    figures: dict[str, float] = {
        "delivered_mb_s": mb_s[most],
        "ratio_to_bare_flight": ratio_of_rounds([one.updates_s for one in ours], [one.updates_s for one in bare]),
        "publisher_rss_anon_mb": peak_mb,
        **stopped,
    }
    for count in sorted(size.applications):
        figures[f"n_{count}.delivered_mb_s"] = mb_s[count]
        figures[f"n_{count}.replay_s"] = seconds[count]
    return BenchResult(
        "fanout",
        figures,
        paper={"delivered_mb_s": PAPER_MB_S, "replay_s": "linear in the number of applications", "cpus": 32},
        peers={"bare_flight_mb_s": median(map(_mb_s, bare))},
        notes=_notes(size),
        plots=_plots(mb_s, seconds),
    )


def _mb_s(round_: Round) -> float:
    return round_.updates_s * UPDATE_BYTES / 1e6


def _alternating(
    replays: Replays, applications: int, rounds: int, progress: Progress
) -> tuple[list[Round], list[Round], float]:
    """Rounds of ours and of bare Flight in turn, and the publisher's highest memory over all of them."""
    ours: list[Round] = []
    bare: list[Round] = []
    with PeakMemory(replays.publisher.pid) as memory:
        for number in range(rounds):
            progress(f"{applications} applications", 0.4 + 0.5 * number / rounds)
            ours.append(replays.tailrace("main", applications))
            progress(f"{applications} clients of bare Flight", 0.4 + 0.5 * (number + 0.5) / rounds)
            bare.append(replays.bare("main", applications))
    return ours, bare, memory.peak_mb


def _with_one_stopped(replays: Replays, applications: int, stopped_s: float) -> dict[str, float]:
    """The publisher's highest memory while one of its applications is stopped and the others replay."""
    replays.connect("main", applications)
    stopped, *others = clients = replays.clients[:applications]
    ask_all(clients, "note_positions")
    with PeakMemory(replays.publisher.pid) as memory:
        for client in others:
            client.ask("finish", within_s=REPLAY_TIMEOUT_S)
        opened_at = replays.publisher.call("open_gate")
        stopped.signal(signal.SIGSTOP)
        try:
            received: list[Received] = [client.answer() for client in others]
            threading.Event().wait(max(0.0, opened_at + stopped_s - time.monotonic()))
        finally:
            stopped.signal(signal.SIGCONT)
    late: Received = stopped.call("finish", within_s=REPLAY_TIMEOUT_S)
    require_whole_log(replays.logs["main"].updates, late, received)
    finished_s = max((one.finished_at for one in received), default=opened_at) - opened_at
    return {
        "stopped.publisher_rss_anon_mb": memory.peak_mb,
        "stopped.seconds": stopped_s,
        "stopped.replay_of_others_s": finished_s,
    }


def require_whole_log(updates: int, stopped: Received, others: Sequence[Received]) -> None:
    """The stopped one may have got some updates again, but must have got all of them; the others each one once."""
    if stopped.distinct != updates:
        raise TailraceError(
            reason=f"{updates} updates are in the log, but the stopped application received {stopped.distinct} of them"
        )
    wrong = [(one.updates, one.distinct) for one in others if (one.updates, one.distinct) != (updates, updates)]
    if wrong:
        raise TailraceError(
            reason=f"{updates} updates are in the log, but the others received {wrong} (all, and different ones)"
        )


def _notes(size: Size) -> tuple[str, ...]:
    return (
        f"{size.log_bytes / 1e6:g} MB of {UPDATE_BYTES} B updates (key, names and values); MB/s counts only those",
        "all applications board before the log's gate opens, so they ride one caravan; the clock stops with the last",
        f"median of {size.rounds} rounds, each followed by bare Flight of the same batches to the same processes",
    )


def _plots(mb_s: dict[int, float], seconds: dict[int, float]) -> tuple[Plot, ...]:
    return (
        Plot(
            "Throughput of one publisher",
            "applications",
            "MB/s delivered",
            {
                "Tailrace, 2 cores": list(mb_s.items()),
                "Wormhole, 32 CPUs (where it levels off)": [(count, PAPER_MB_S) for count in mb_s],
            },
        ),
        Plot("Time to replay the log", "applications", "seconds", {"Tailrace, 2 cores": list(seconds.items())}),
    )
