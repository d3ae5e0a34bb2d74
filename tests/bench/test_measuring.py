from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tailrace.bench.measuring import PeakMemory, ratio_of_rounds, rss_anon_mb, warm_page_cache

GROWS = "import sys; print('small', flush=True); sys.stdin.readline(); kept = bytearray(100_000_000)\n" + (
    "print('large', flush=True); sys.stdin.readline()"
)


def test_the_ratio_compares_each_round_with_its_own_peer() -> None:
    """A slow moment of the machine slows both halves of a round: here by ten in the second one."""
    assert ratio_of_rounds([8.0, 0.8, 9.0], [10.0, 1.0, 10.0]) == 0.8


def test_peak_memory_sees_another_process_grow() -> None:
    with subprocess.Popen([sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"small\n"
        before_mb = rss_anon_mb(process.pid)
        with PeakMemory(process.pid) as memory:
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"large\n"
            with PeakMemory(process.pid) as now:
                pass  # looks once as it opens, so it does not depend on the sampler's pace
        process.stdin.write(b"\n")
    assert now.peak_mb >= before_mb + 90
    assert memory.peak_mb >= before_mb


def test_own_memory_is_anonymous_memory_in_megabytes() -> None:
    assert 1 < rss_anon_mb(os.getpid()) < 10_000


def test_only_log_files_are_read_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "1.log").write_bytes(b"x" * 10)
    (tmp_path / "archive" / "2.log").write_bytes(b"x" * 5)
    (tmp_path / "3.sst").write_bytes(b"x" * 100)
    assert warm_page_cache(tmp_path) == 15
