"""How a process of Tailrace sets up CPython: for many short turns between threads, and no long pauses.

Most of a role's time passes outside the interpreter, in kernels, RocksDB, gRPC and fsyncs. A thread that returns from
there waits for a busy one to let go of the interpreter, by default for 5 ms: longer than a whole delivery takes. And a
full garbage collection walks everything that was ever imported, for tens of milliseconds, to find nothing. An
application that cares for its tail latency may call `tune` too; the library does not do it to other people's processes.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

# Every thread that waits for its turn wakes once per interval to ask for it: with twenty streams, 0.5 ms cost a fifth
# of the throughput that 2 ms gives, and 5 ms gives hardly more.
SWITCH_INTERVAL_S: Final = 0.002
GC_THRESHOLDS: Final = (10_000, 20, 100)  # batches are freed by reference counts; cycles are rare


def tune() -> None:
    """Call it once, after the imports."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
