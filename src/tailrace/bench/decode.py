"""Bench `decode`: how fast one core turns the log's bytes into Arrow batches.

A process pinned to one core reads the whole log through `RocksDBSource.read`, checksums included, a warm-up and then
several times, the sizes alternating; the log lies in the page cache. Updates per second count updates, bytes per second
the log's bytes. Each pass is followed by its peer: the same files read into one buffer, and nothing done with them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.bench.folders import bench_folder
from tailrace.bench.measuring import median, pin_to_one_core, warm_page_cache
from tailrace.bench.processes import RoleProcesses
from tailrace.bench.reading import batches_of
from tailrace.bench.results import BenchOptions, BenchResult, Progress
from tailrace.bench.written import WrittenLog


@dataclass(frozen=True, slots=True)
class Size:
    log_bytes: int
    rounds: int


FULL: Final = Size(log_bytes=1_000_000_000, rounds=7)
QUICK: Final = Size(log_bytes=300_000_000, rounds=5)
UPDATE_BYTES: Final = {"200b": 200, "1kb": 1000}


class DecodeReader:
    """Role: reads logs to their head, on one core."""

    def __init__(self) -> None:
        self.core = pin_to_one_core()

    def read(self, log: WrittenLog) -> tuple[float, int]:
        """Seconds and log bytes of one pass over everything."""
        updates = log_bytes = 0
        started = time.perf_counter()
        for batch in batches_of(log):
            updates += batch.updates.num_rows
            log_bytes += batch.log_bytes
        elapsed_s = time.perf_counter() - started
        assert updates == log.updates, f"{log.updates} updates were written, {updates} were read"
        return elapsed_s, log_bytes

    def read_bare(self, log: WrittenLog) -> tuple[float, int]:
        """Seconds and bytes of reading the log's files, and no more."""
        started = time.perf_counter()
        log_bytes = warm_page_cache(log.folder)
        return time.perf_counter() - started, log_bytes

    def close(self) -> None:
        """Nothing stays open between two passes."""


def run(options: BenchOptions, progress: Progress) -> BenchResult:
    with bench_folder(options.folder) as folder:
        return measure(QUICK if options.quick else FULL, folder, progress)


def measure(size: Size, folder: Path, progress: Progress) -> BenchResult:
    with RoleProcesses(folder) as processes:
        reader = processes.start("reader", "tailrace.bench.decode:DecodeReader")
        logs = written_logs(processes, folder, size.log_bytes, progress)
        reader.ready()
        for log in logs.values():
            reader.call("read", log=log)
        passes: dict[str, list[tuple[float, int]]] = {name: [] for name in logs}
        bare: list[tuple[float, int]] = []
        for number in range(size.rounds):
            progress("decoding", 0.4 + 0.6 * number / size.rounds)
            for name, log in logs.items():
                passes[name].append(reader.call("read", log=log))
                bare.append(reader.call("read_bare", log=log))
    figures: dict[str, float] = {}
    for name, log in logs.items():
        figures[f"updates_s_{name}"] = log.updates / median(seconds for seconds, _ in passes[name])
        figures[f"gb_s_{name}"] = median(log_bytes / seconds / 1e9 for seconds, log_bytes in passes[name])
    notes = (
        "one process pinned to one core, the log in the page cache, checksums verified, "
        f"median of {size.rounds} passes over {size.log_bytes / 1e6:g} MB of updates",
        "an update's size is its key and its pairs' names and values; GB/s counts the log's bytes",
    )
    peers = {"read_gb_s": median(log_bytes / seconds / 1e9 for seconds, log_bytes in bare)}
    return BenchResult("decode", figures, peers=peers, notes=notes)


def written_logs(processes: RoleProcesses, folder: Path, log_bytes: int, progress: Progress) -> dict[str, WrittenLog]:
    """A log per size of update, in the page cache."""
    writer = processes.start("log-writer", "tailrace.bench.logs:LogWriter")
    writer.ready()
    logs: dict[str, WrittenLog] = {}
    for name, update_bytes in UPDATE_BYTES.items():
        progress(f"writing a log of {update_bytes} B updates", 0.2 * len(logs))
        logs[name] = writer.call("write", folder=folder / name, update_bytes=update_bytes, log_bytes=log_bytes)
        warm_page_cache(folder / name)
    processes.end(writer)
    return logs
