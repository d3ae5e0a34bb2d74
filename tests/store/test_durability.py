"""Nothing is answered or declared safe before it is on the disk; proven with a hand on the fsync, and with kill -9."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailrace.errors import StoreFailed, Unavailable
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.database import FsyncFailed
from tailrace.store.folder import SAFE_FILE
from tailrace.store.operations import put
from tailrace.updates.position import START
from tests.store.conftest import WAIT_S, HeldSyncer, ImpatientClock, Opens


def test_a_grouped_write_is_answered_after_the_fsync(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)
    answered = store.submit([put("t", b"a", b"1")])
    syncer.until_asked()

    assert not answered.done()
    assert store.safe_through() == 0
    assert store.latest_sequence() == 2

    syncer.release()
    assert answered.result(WAIT_S).last == 2
    assert store.safe_through() == 2


def test_a_reader_of_the_log_gets_nothing_that_is_not_safe(open_store: Opens) -> None:
    syncer = HeldSyncer()
    store = open_store(syncer=syncer)
    store.write([put("t", b"safe", b"1")])
    syncer.until_asked()
    syncer.hold()
    answered = store.submit([put("t", b"unsafe", b"1")])
    syncer.until_asked()
    source = RocksDBSource(store.path, line="l", era=1, shards=1, horizon=store)
    stop = threading.Event()
    batches = source.read(START, stop=stop)

    assert next(batches).updates.column("key").to_pylist() == [b"safe"]
    assert source.bounds().through.sequence == 2
    assert not answered.done()

    syncer.release()
    assert next(batches).updates.column("key").to_pylist() == [b"unsafe"]
    stop.set()
    source.close()


def test_a_reader_is_woken_before_the_writer_is_answered(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)
    seen_when_answered: list[int] = []
    answered = store.submit([put("t", b"a", b"1")])
    answered.add_done_callback(lambda _: seen_when_answered.append(store.safe_through()))
    syncer.until_asked()
    syncer.release()

    answered.result(WAIT_S)
    store.close()

    assert seen_when_answered == [2]


def test_whatever_gathers_during_an_fsync_shares_the_next_one(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)
    first = store.submit([put("t", b"first", b"1")])
    syncer.until_asked()
    gathered = [store.submit([put("t", b"%d" % number, b"1")], durability="none") for number in range(20)]
    gathered += [store.submit([put("t", b"%d" % number, b"1")]) for number in range(500)]
    for future in gathered[:20]:
        future.result(WAIT_S)  # written, if not safe: the log does not wait for the fsync
    assert not first.done()

    syncer.release()
    for future in [first, *gathered]:
        future.result(WAIT_S)

    assert syncer.calls <= 4  # the first, what had been written by its end, and what was written during that


def test_with_fsync_each_write_has_one_of_its_own(open_store: Opens) -> None:
    syncer = HeldSyncer()
    store = open_store(syncer=syncer, durability="fsync")
    futures = [store.submit([put("t", b"%d" % number, b"1")]) for number in range(20)]
    for future in futures:
        future.result(WAIT_S)

    assert syncer.calls == 20


def test_with_fsync_nothing_is_answered_before_it(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)
    answered = store.submit([put("t", b"a", b"1")], durability="fsync")
    syncer.until_asked()
    assert (answered.done(), store.safe_through()) == (False, 0)

    syncer.release()
    assert answered.result(WAIT_S).last == store.safe_through() == 2


def test_without_durability_everything_written_counts_as_safe(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer, durability="none")

    assert store.write([put("t", b"a", b"1")]).last == 2
    assert store.safe_through() == 2
    assert syncer.calls == 0


def test_a_write_may_ask_for_less_than_its_store_and_becomes_safe_all_the_same(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)

    assert store.write([put("t", b"a", b"1")], durability="none").last == 2
    assert store.safe_through() == 0

    syncer.release()
    assert store.wait_beyond(0, WAIT_S) == 2


def test_a_write_may_ask_for_more_than_its_store(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer, durability="none")
    answered = store.submit([put("t", b"a", b"1")], durability="grouped")
    syncer.until_asked()
    assert not answered.done()

    syncer.release()
    assert answered.result(WAIT_S).last == 2


def test_a_failed_fsync_answers_with_the_failure_and_ends_writing_for_good(open_store: Opens) -> None:
    syncer, clock = HeldSyncer(held=True), ImpatientClock()
    store = open_store(syncer=syncer, clock=clock, recover_free_bytes=1)
    syncer.error = FsyncFailed(path="p", reason="fsync failed: I/O error")
    answered = store.submit([put("t", b"a", b"1")])
    syncer.until_asked()
    syncer.release()

    with pytest.raises(StoreFailed, match=r"fsync failed: I/O error.*may or may not be in the log"):
        answered.result(WAIT_S)
    syncer.error = None
    assert clock.rests.wait(WAIT_S), "the store does not rest, it means to recover"
    with pytest.raises(StoreFailed, match="fsync failed"):
        store.write([put("t", b"b", b"1")])
    assert store.safe_through() == 0
    assert store.failure() is not None
    assert store.get("t", [b"a"]) == [b"1"]


def test_a_bug_in_a_thread_of_the_store_is_answered_too(open_store: Opens, caplog: pytest.LogCaptureFixture) -> None:
    syncer = HeldSyncer()
    store = open_store(syncer=syncer)
    syncer.error = ZeroDivisionError("oops")

    with pytest.raises(StoreFailed, match="ZeroDivisionError: oops"):
        store.write([put("t", b"a", b"1")])
    assert "failed in an unforeseen way" in caplog.text


def test_callers_wait_at_the_queue_limit_and_then_are_told(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer, max_queued_writes=10, queue_wait_s=0.05)
    futures = [store.submit([put("t", b"%d" % number, b"1")]) for number in range(10)]

    with pytest.raises(Unavailable, match="the store is busy: 10 writes of"):
        store.submit([put("t", b"k", b"1")])

    syncer.release()
    for future in futures:
        future.result(WAIT_S)
    assert store.write([put("t", b"k", b"1")]).last == 22


def test_a_caller_at_the_byte_limit_goes_on_when_there_is_room(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(
        syncer=syncer, max_queued_bytes=3000, max_write_bytes=2000, max_update_bytes=2000, max_key_bytes=100
    )
    first = store.submit([put("t", b"a", b"x" * 1900)])
    syncer.until_asked()
    late: list[int] = []
    caller = threading.Thread(target=lambda: late.append(store.write([put("t", b"b", b"x" * 1900)]).last))
    caller.start()
    assert store.latest_sequence() == 2

    syncer.release()
    caller.join(WAIT_S)

    assert (first.result(WAIT_S).last, late) == (2, [4])


def test_the_whole_log_is_fsynced_before_it_counts_as_safe(open_store: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    store.write([put("t", b"a", b"1")])
    store.flush()
    store.write([put("t", b"b", b"1")])
    store.close()
    synced: list[str] = []
    monkeypatch.setattr("tailrace.store.folder._sync", lambda path: synced.append(path.name))
    logs = {file.name for file in store.path.rglob("*.log")}

    open_store()

    assert logs
    assert logs <= set(synced)


def noted(folder: Path) -> int:
    """The sequence up to which the store has noted the log as safe."""
    file = folder / SAFE_FILE
    return int(file.read_text().split()[1]) if file.exists() else 0


def test_a_log_that_lost_what_was_safe_is_noticed(open_store: Opens, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), "grouped", "256"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    while writer.stdout.readline() and noted(folder) < 100:  # more than the 100 bytes left below can hold
        pass
    writer.send_signal(signal.SIGKILL)
    writer.stdout.close()
    assert writer.wait(WAIT_S) == -signal.SIGKILL
    for file in folder.glob("*.log"):
        file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(StoreFailed, match=r"its log ends at sequence .* though everything up to .* had been made safe"):
        open_store()
    (folder / SAFE_FILE).unlink()
    open_store().write([put("t", b"after", b"v")])


def test_a_hole_in_the_log_ends_it(open_store: Opens, tmp_path: Path) -> None:
    store = open_store(durability="none")
    for number in range(100):
        store.write([put("t", b"%02d" % number, b"v" * 1000)])
    crashed = shutil.copytree(store.path, tmp_path / "crashed", ignore=shutil.ignore_patterns("*.draft"))
    [log] = crashed.glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    log.write_bytes(damaged)

    again = open_store(crashed, durability="none")

    keys = [key for key, _ in again.scan("t")]
    assert 40 < len(keys) < 60
    assert keys == [b"%02d" % number for number in range(len(keys))]  # nothing from behind the hole
    assert again.latest_sequence() == 2 * len(keys)


def test_without_durability_nothing_is_noted(open_store: Opens) -> None:
    store = open_store()
    store.write([put("t", b"a", b"1")])
    store.close()
    assert (store.path / SAFE_FILE).read_text().startswith("1 2 ")

    again = open_store(durability="none")
    again.write([put("t", b"b", b"1")])
    again.close()
    assert not (store.path / SAFE_FILE).exists()


@pytest.mark.parametrize("half", ["", "1 99", "1 99 5\n", "\0\0\0"])
def test_half_a_note_is_no_note(open_store: Opens, half: str) -> None:
    store = open_store()
    store.close()
    (store.path / SAFE_FILE).write_text(half)
    open_store().write([put("t", b"a", b"1")])


WRITER = """
import sys
from tailrace.store.engine import Store, StoreOptions
from tailrace.store.operations import put
options = StoreOptions(durability=sys.argv[2], write_buffer_bytes=int(sys.argv[3]) << 20)
store = Store.open(sys.argv[1], era=0, options=options)
number = 0
def told(future, number):
    sys.stdout.write(f"{number} {future.result().last}\\n")
    sys.stdout.flush()
while True:
    store.submit([put("t", b"%d" % number, b"v" * 2000)]).add_done_callback(lambda f, number=number: told(f, number))
    number += 1
"""


@pytest.mark.parametrize(("durability", "enough"), [("grouped", 1500), ("fsync", 200), ("none", 1500)])
def test_every_answered_write_survives_kill_9(open_store: Opens, tmp_path: Path, durability: str, enough: int) -> None:
    folder = tmp_path / "store"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), durability, "1"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    answered = [writer.stdout.readline() for _ in range(enough)]
    writer.send_signal(signal.SIGKILL)
    rest = writer.stdout.read()
    writer.stdout.close()
    assert writer.wait(WAIT_S) == -signal.SIGKILL
    answered += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    told = {int(number): int(last) for number, last in (line.split() for line in answered)}

    store = open_store(era=1)

    assert len(told) >= enough
    assert all(value is not None for value in store.get("t", [b"%d" % number for number in told]))
    assert store.safe_through() >= max(told.values())
    source = RocksDBSource(folder, line="l", era=1, shards=1, horizon=store)
    stop = threading.Event()
    in_log: dict[bytes, int] = {}
    for batch in source.read(START, stop=stop):
        columns = batch.updates.select(["key", "sequence"]).to_pydict()
        in_log.update(zip(columns["key"], columns["sequence"], strict=True))
        if batch.through.sequence >= store.safe_through():
            stop.set()
    source.close()
    assert {number: in_log[b"%d" % number] for number in told} == told
    assert store.write([put("t", b"after", b"1")]).last == store.latest_sequence()
