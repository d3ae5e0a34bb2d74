"""Bench `latency`: from commit to callback under a steady load (Wormhole, Figure 9).

Store and publisher in one process, writes fsynced in groups; one writer sends 5,000 writes/s of one 500 B update each
by schedule (open loop); one application takes them through `on_updates`. After a warm-up every update counts. Beside
it stands what an fsync of one update takes on the same disk, with nothing else going on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.bench.folders import bench_folder
from tailrace.bench.processes import RoleProcesses
from tailrace.bench.results import BenchOptions, BenchResult, Plot, Progress
from tailrace.bench.timing import Latencies
from tailrace.bench.writing import Written

DATASET: Final = "latency"
UPDATE_BYTES: Final = 500
FIRST_WRITES: Final = 200  # make the table, the connections and the compiled code
DRAIN_TIMEOUT_S: Final = 60.0
FSYNCS: Final = 300


@dataclass(frozen=True, slots=True)
class Size:
    writes_s: float
    warm_up_s: float
    measured_s: float


FULL: Final = Size(5_000, warm_up_s=5, measured_s=20)
QUICK: Final = Size(5_000, warm_up_s=5, measured_s=10)


def run(options: BenchOptions, progress: Progress) -> BenchResult:
    with bench_folder(options.folder) as folder:
        return measure(QUICK if options.quick else FULL, folder, progress)


def measure(size: Size, folder: Path, progress: Progress) -> BenchResult:
    progress("starting processes", 0.0)
    with RoleProcesses(folder) as processes:
        publisher = processes.start("publisher", "tailrace.bench.publishing:PublishingRole")
        application = processes.start("application", "tailrace.bench.timing:TimingRole")
        writer = processes.start("writer", "tailrace.bench.writing:WritingRole", update_bytes=UPDATE_BYTES)
        for process in (publisher, application, writer):
            process.ready()
        address = publisher.call("serve", datasets={DATASET: folder / "store"}, data=folder / "publisher")
        application.call("subscribe", url=f"tailrace://{address}/{DATASET}")
        writer.call("connect", url=f"store://{address}/{DATASET}")
        writer.call("warm_up", writes=FIRST_WRITES)
        application.call("wait_for", updates=FIRST_WRITES, within_s=DRAIN_TIMEOUT_S)
        application.call("forget")
        progress(f"{size.writes_s:g} writes/s", 0.2)
        written: Written = writer.call("write", writes_s=size.writes_s, seconds=size.warm_up_s + size.measured_s)
        progress("waiting for the last update", 0.95)
        application.call("wait_for", updates=FIRST_WRITES + written.writes, within_s=DRAIN_TIMEOUT_S)
        found: Latencies = application.call("latencies", skip_s=size.warm_up_s)
        alone: dict[str, float] = writer.call("fsync_alone", folder=folder, count=FSYNCS)
    return _result(size, written, found, alone)


def _result(size: Size, written: Written, found: Latencies, alone: dict[str, float]) -> BenchResult:
    figures: dict[str, float] = {
        **found.after_commit,
        "writes_s": written.writes / written.seconds,
        "updates": found.updates,
        "updates_per_batch": written.writes / found.batches,
        "writer_late_ms_p99": written.late_p99_ms,
        "answer_ms_p99": written.answer_p99_ms,
    }
    figures |= {f"since_due.{name}": value for name, value in found.after_due.items()}
    notes = (
        f"{size.writes_s:g} writes/s for {size.measured_s:g} s after {size.warm_up_s:g} s of warm-up, one "
        f"{UPDATE_BYTES} B update each, sent by schedule, fsynced in groups",
        "latency: from committed_at, which the store stamps before the write and its fsync, to the call of on_updates; "
        "since_due: from when the writer should have sent it",
    )
    return BenchResult(
        "latency",
        figures,
        paper={"p99_5_ms": 100},
        peers=alone,
        notes=notes,
        plots=(Plot("From commit to callback", "ms", "% of updates", {"Tailrace": found.curve}, log_x=True),),
    )
