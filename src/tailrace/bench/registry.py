"""Which benches there are. A bench's own module, and with it Arrow and numba, is imported when the bench runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from tailrace.bench.results import BenchOptions, BenchResult, Progress

Run = Callable[[BenchOptions, Progress], BenchResult]


@dataclass(frozen=True, slots=True)
class Bench:
    name: str
    description: str
    run: Run


def _in_module(name: str) -> Run:
    def run(options: BenchOptions, progress: Progress) -> BenchResult:
        return cast(Run, import_module(f"tailrace.bench.{name}").run)(options, progress)

    return run


_DESCRIPTIONS: Final = {
    "fanout": "1 to 20 applications each replay a log of 1 KB updates, beside bare Arrow Flight (Wormhole, Figure 4)",
    "subscriber": "one subscriber, 500 B updates, no filter, beside bare Arrow Flight",
    "latency": "5,000 writes/s of 500 B, grouped fsync: from commit to callback (Wormhole, Figure 9)",
    "decode": "a log of 200 B and of 1 KB updates to Arrow, on one core",
    "filters": "20 different filters over the same log, beside decoding it, on one core",
}

BENCHES: Final[Mapping[str, Bench]] = {
    name: Bench(name, description, _in_module(name)) for name, description in _DESCRIPTIONS.items()
}
