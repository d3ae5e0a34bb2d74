"""Bench `filters`: what 20 applications' filters cost beside decoding the log that they are applied to.

On one core, batch by batch as a publisher does it: decode, then 20 masks that share their look-ups, then (apart, as it
depends on how much passes) the rows that each filter lets through. The figures are ratios of times summed over a pass.
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
from tailrace.updates.filters import Filter, FilterSet


@dataclass(frozen=True, slots=True)
class Size:
    log_bytes: int
    rounds: int


FULL: Final = Size(log_bytes=1_000_000_000, rounds=7)
QUICK: Final = Size(log_bytes=300_000_000, rounds=5)
UPDATE_BYTES: Final = 1000
FILTERS: Final = (
    "topic = 'topic-00'",
    "topic = 'topic-07' OR topic = 'topic-08'",
    "topic IN ('topic-01', 'topic-02', 'topic-03')",
    "topic IN ('topic-10', 'topic-11', 'topic-12', 'topic-13', 'topic-14', 'topic-15')",
    "NOT topic = 'topic-39'",
    "topic = 'topic-20' AND score BETWEEN 0 AND 1000",
    "score BETWEEN 99000 AND 99999",
    "score BETWEEN 0 AND 49999 AND topic MATCHES '-1[0-9]$'",
    "user = '17'",
    "user IN ('1', '2', '3', '5', '8', '13', '21', '34')",
    "user BETWEEN 100 AND 199",
    "EXISTS mcd",
    "EXISTS user AND NOT EXISTS mcd",
    "table = 'posts' AND operation = 'put'",
    "table IN ('users', 'likes') OR topic = 'topic-31'",
    "shard BETWEEN 0 AND 3",
    "shard IN (4, 5) AND NOT user BETWEEN 0 AND 2499",
    "key MATCHES '^post:00'",
    "topic = 'topic-05' OR EXISTS mcd OR (user = '42' AND shard BETWEEN 1 AND 5000)",
    "body MATCHES '^[A-M]'",
)


@dataclass(frozen=True, slots=True)
class Pass:
    """Seconds of one pass over the log."""

    decode_s: float
    masks_s: float
    materialise_s: float
    rows: int
    passed: int


class FilterReader:
    """Role: decodes and filters, on one core."""

    def __init__(self) -> None:
        self.core = pin_to_one_core()
        self._filters = [Filter.parse(text) for text in FILTERS]
        self._together = FilterSet(self._filters)  # as a caravan does with its riders' filters

    def read(self, log: WrittenLog) -> Pass:
        decode_s = masks_s = materialise_s = 0.0
        rows = passed = 0
        clock = time.perf_counter
        started = clock()
        for log_batch in batches_of(log):
            batch = log_batch.updates
            decoded = clock()
            lookups = self._together.lookups(batch)
            masks = [one.mask(batch, lookups) for one in self._filters]
            masked = clock()
            passed += sum(batch.filter(mask).num_rows for mask in masks)
            materialised = clock()
            decode_s += decoded - started
            masks_s += masked - decoded
            materialise_s += materialised - masked
            rows += batch.num_rows
            del masks, lookups, batch, log_batch
            started = clock()
        assert rows == log.updates, f"{log.updates} updates were written, {rows} were read"
        return Pass(decode_s, masks_s, materialise_s, rows, passed)

    def close(self) -> None:
        """Nothing stays open between two passes."""


def run(options: BenchOptions, progress: Progress) -> BenchResult:
    with bench_folder(options.folder) as folder:
        return measure(QUICK if options.quick else FULL, folder, progress)


def measure(size: Size, folder: Path, progress: Progress) -> BenchResult:
    with RoleProcesses(folder) as processes:
        writer = processes.start("log-writer", "tailrace.bench.logs:LogWriter")
        reader = processes.start("reader", "tailrace.bench.filters:FilterReader")
        writer.ready()
        progress("writing the log", 0.0)
        log: WrittenLog = writer.call(
            "write", folder=folder / "1kb", update_bytes=UPDATE_BYTES, log_bytes=size.log_bytes
        )
        processes.end(writer)
        warm_page_cache(log.folder)
        reader.ready()
        reader.call("read", log=log)
        passes: list[Pass] = []
        for number in range(size.rounds):
            progress("decoding and filtering", 0.3 + 0.7 * number / size.rounds)
            passes.append(reader.call("read", log=log))
    rows = passes[0].rows
    figures = {
        "masks_to_decode": median(one.masks_s / one.decode_s for one in passes),
        "materialise_to_decode": median(one.materialise_s / one.decode_s for one in passes),
        "mask_ns_per_row": median(one.masks_s for one in passes) / rows / len(FILTERS) * 1e9,
        "passed_share": passes[0].passed / rows / len(FILTERS),
    }
    notes = (
        f"{len(FILTERS)} different filters over the same {UPDATE_BYTES} B updates, one core, look-ups shared",
        f"median of {size.rounds} passes; materialising is copying out the rows that each filter lets through",
    )
    peers = {"decode_ns_per_row": median(one.decode_s for one in passes) / rows * 1e9}
    return BenchResult("filters", figures, peers=peers, notes=notes)
