from __future__ import annotations

import subprocess
import sys

from tailrace.bench.registry import BENCHES


def test_every_bench_of_the_table_is_there() -> None:
    assert sorted(BENCHES) == ["decode", "fanout", "filters", "latency", "subscriber"]
    assert [name for name, bench in BENCHES.items() if bench.name != name or not bench.description] == []


def test_naming_the_benches_loads_neither_arrow_nor_numba() -> None:
    program = (
        "import sys, tailrace.bench.registry\n"
        "print([name for name in ('pyarrow', 'numba', 'rocksdict') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout.strip() == "[]"
