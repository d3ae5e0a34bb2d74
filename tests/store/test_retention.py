"""How long the log is kept, once tables hold what it says."""

from __future__ import annotations

from pathlib import Path

from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.operations import put
from tests.store.conftest import Opens

MIB = 1 << 20


def log_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*.log"))


def write_mib(store: object, count: int) -> None:
    for number in range(count):
        store.write([put("t", b"%d-%d" % (number, part), bytes(100_000)) for part in range(10)])  # type: ignore[attr-defined]


def test_old_log_files_are_kept_in_the_archive(open_store: Opens) -> None:
    store = open_store(write_buffer_bytes=2 * MIB)
    write_mib(store, 8)
    store.flush()

    assert list((store.path / "archive").glob("*.log"))
    assert log_bytes(store.path) >= 8_000_000
    assert RocksDBSource(store.path, line="l", era=1, shards=1, horizon=store).bounds().after.sequence == 0


def test_log_beyond_the_size_limit_goes_when_the_store_is_opened(open_store: Opens) -> None:
    store = open_store(write_buffer_bytes=2 * MIB)
    write_mib(store, 12)
    store.close()
    before = log_bytes(store.path)

    again = open_store(write_buffer_bytes=2 * MIB, wal_keep_bytes=5 * MIB)
    again.write([put("t", b"k", b"v")])
    again.flush()

    assert before >= 12_000_000
    assert log_bytes(store.path) <= 5 * MIB + MIB
    bounds = RocksDBSource(store.path, line="l", era=1, shards=1, horizon=again).bounds()
    assert 0 < bounds.after.sequence < bounds.through.sequence == again.latest_sequence()
