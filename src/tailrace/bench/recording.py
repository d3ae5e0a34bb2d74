"""Keeps a result: `NAME.json` with where it was measured, and a plot `NAME-N.svg` for each that the bench drew.

The newest result replaces the last one of that bench, and the repository's history keeps those before it. A quick
result says so.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailrace.bench.drawing import svg
from tailrace.bench.results import BenchResult


def record(result: BenchResult, folder: Path, *, quick: bool) -> list[Path]:
    """Writes the files into `folder`; returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{result.name}.json"]
    content = {
        **result.as_json(),
        "notes": list(result.notes),
        "quick": quick,
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(folder),
        "machine": machine(),
    }
    written[0].write_text(json.dumps(content, indent=2) + "\n")
    for number, plot in enumerate(result.plots, 1):
        written.append(folder / f"{result.name}-{number}.svg")
        written[-1].write_text(svg(plot))
    return written


def machine() -> dict[str, Any]:
    """What figures depend on, without what names the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _commit(folder: Path) -> str:
    """What was measured, as git names it, with `-dirty` for uncommitted changes; empty where there is no repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""
