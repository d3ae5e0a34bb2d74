"""Where a bench writes: a folder of its own below the one that was asked for, gone when the bench ends."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bench_folder(below: Path | None) -> Iterator[Path]:
    if below is not None:
        below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", dir=below) as folder:
        yield Path(folder)
