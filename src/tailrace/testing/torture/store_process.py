"""The store of a torture run, put together without the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from tailrace.store.engine import Store
from tailrace.store.options import StoreOptions
from tailrace.store.service import StoreService
from tailrace.testing.torture.content import DATASET, SHARDS
from tailrace.testing.torture.ending import end_on_sigterm
from tailrace.wire.server import Server


def main(folder: Path, port: int) -> int:
    stop = end_on_sigterm()
    with (
        Store.open(folder, era=0, options=StoreOptions(shards=SHARDS)) as store,
        Server(f"127.0.0.1:{port}", [StoreService({DATASET: store})]),
    ):
        print("ready", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
