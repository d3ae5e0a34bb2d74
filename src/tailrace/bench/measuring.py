"""Instruments: quantiles, peak memory of another process, one core, a warm page cache.

Memory is `RssAnon`: what a process holds for itself. Pages of mapped files come and go with the page cache.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

SAMPLE_EVERY_S: Final = 0.05
_READ_BYTES: Final = 4 << 20


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def ratio_of_rounds(ours: Sequence[float], peers: Sequence[float]) -> float:
    """The median of the rounds' own ratios: each round's two halves ran next to each other."""
    return median(mine / peer for mine, peer in zip(ours, peers, strict=True))


def pin_to_one_core() -> int:
    """Keeps this process on one core, the last one it may use; returns its number."""
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def warm_page_cache(folder: Path) -> int:
    """Reads every log file below once; returns their bytes."""
    total = 0
    buffer = bytearray(_READ_BYTES)
    for path in sorted(folder.rglob("*.log")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def rss_anon_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} has no memory any more")


class PeakMemory:
    """The highest `RssAnon` of a process while this context is open."""

    def __init__(self, pid: int) -> None:
        self.peak_mb = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="peak-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self.peak_mb = rss_anon_mb(self._pid)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_EVERY_S):
            try:
                self.peak_mb = max(self.peak_mb, rss_anon_mb(self._pid))
            except (FileNotFoundError, ProcessLookupError):
                return  # it ended; whoever runs the bench learns of that from the process itself
