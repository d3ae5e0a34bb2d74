"""A full disk: writes are refused with a remedy, nothing answered is lost, and the store takes writes again."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import pytest

from tailrace.errors import StoreFailed, TailraceError, Unavailable
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.commits import Commit, Commits, Outcome
from tailrace.store.database import Database
from tailrace.store.engine import Store
from tailrace.store.operations import prepare, put
from tailrace.store.options import StoreOptions
from tailrace.updates.position import START
from tests.store.conftest import WAIT_S, HeldSyncer, ImpatientClock, Opens

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 48 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True, capture_output=True)


def fill(store: Store, disk: Path) -> list[bytes]:
    """Writes until the disk is full; returns the keys of what was answered."""
    (disk / "ballast").write_bytes(b"x" * (36 * MIB))
    answered: list[bytes] = []
    error: StoreFailed | None = None
    while error is None:
        key = b"%06d" % len(answered)
        try:
            store.write([put("t", key, key * 10_000)])
            answered.append(key)
        except StoreFailed as refused:
            error = refused
    assert "the disk is full" in str(error)
    assert "free space, and the store takes writes again by itself" in str(error)
    assert str(store.path) in str(error)
    return answered


def keys_in_log(store: Store) -> list[bytes]:
    source = RocksDBSource(store.path, line="l", era=1, shards=1, horizon=store)
    stop = threading.Event()
    keys: list[bytes] = []
    for batch in source.read(START, stop=stop):
        keys += cast(list[bytes], batch.updates.column("key").to_pylist())
        if batch.through.sequence >= store.safe_through():
            stop.set()
    source.close()
    return keys


def test_a_full_disk_refuses_writes_and_mends(
    open_store: Opens, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = threading.Event()
    store = open_store(small_disk / "store", recover_interval_s=0.02, recover_free_bytes=8 * MIB)
    real = Commits._resume

    def resumed(commits: Commits, database: Database) -> bool:
        done = real(commits, database)
        back.set()
        return done

    monkeypatch.setattr(Commits, "_resume", resumed)

    answered = fill(store, small_disk)
    safe = store.safe_through()

    with pytest.raises(StoreFailed, match="the disk is full"):
        store.write([put("t", b"refused", b"v")])
    assert store.get("t", answered[:1]) == [answered[0] * 10_000]
    assert safe >= 2 * len(answered)

    (small_disk / "ballast").unlink()
    assert back.wait(WAIT_S)

    assert store.failure() is None
    assert store.write([put("t", b"after", b"v")]).last == store.safe_through() > safe
    assert all(value is not None for value in store.get("t", answered))
    in_log = keys_in_log(store)
    assert in_log[: len(answered)] == answered
    assert in_log[-1] == b"after"


def test_a_store_that_failed_can_be_closed_and_opened(open_store: Opens, small_disk: Path) -> None:
    store = open_store(small_disk / "store", recover_free_bytes=1000 * MIB)
    answered = fill(store, small_disk)
    store.close()
    (small_disk / "ballast").unlink()

    again = open_store(small_disk / "store")

    assert all(value is not None for value in again.get("t", answered))
    assert keys_in_log(again)[: len(answered)] == answered


def test_an_open_scan_does_not_hold_up_the_store(open_store: Opens) -> None:
    syncer = HeldSyncer()
    store = open_store(syncer=syncer, clock=ImpatientClock(), recover_free_bytes=1)
    store.write([put("t", b"a", b"1"), put("t", b"b", b"1")])
    rows = store.scan("t")
    assert next(rows) == (b"a", b"1")

    syncer.error = StoreFailed(path="p", reason="the disk is full")
    with pytest.raises(StoreFailed, match="the disk is full"):
        store.write([put("t", b"c", b"1")])
    syncer.error = None

    assert store.wait_beyond(3, WAIT_S) == 5  # it was opened anew
    assert store.write([put("t", b"d", b"1")]).last == 7
    with pytest.raises(Unavailable, match=r"a scan lost its place: store .* was closed, or opened anew.*; scan again"):
        next(rows)
    assert [key for key, _ in store.scan("t")] == [b"a", b"b", b"c", b"d"]


def test_a_log_that_came_back_shorter_than_what_was_safe_ends_writing_for_good(tmp_path: Path) -> None:
    options, clock, syncer = StoreOptions(recover_free_bytes=1), ImpatientClock(), HeldSyncer()
    shorter = tmp_path / "shorter"
    commits = Commits(
        Database(tmp_path / "store", options, clock),
        lambda: Database(shorter, options, clock),
        era=0,
        options=options,
        clock=clock,
        syncer=syncer,
    )

    def write(key: bytes) -> Outcome:
        answered: Future[Sequence[Outcome]] = Future()
        commits.submit(Commit([prepare([put("t", key, b"v")], options)], "grouped", answered.set_result))
        return answered.result(WAIT_S)[0]

    write(b"kept")
    shutil.copytree(tmp_path / "store", shorter, ignore=shutil.ignore_patterns("*.draft"))  # of the safe note, passing
    write(b"lost")
    syncer.error = StoreFailed(path="p", reason="the disk is full")
    assert isinstance(write(b"refused"), TailraceError)

    assert clock.rests.wait(WAIT_S), "the store goes on without what was safe"
    with pytest.raises(StoreFailed, match="its log ends at sequence 2, though 4 was safe; restore a backup"):
        write(b"late")
    assert commits.safe_through == 4
    commits.close()
    commits.database.close()
