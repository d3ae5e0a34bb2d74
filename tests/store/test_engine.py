"""A store's own promises: atomic writes, exact sequences, a log that another reader understands."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tailrace.errors import ConfigInvalid, NotFound, StoreFailed, Unavailable, UpdateInvalid, VersionTooNew
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.store.engine import Store
from tailrace.store.folder import FORMAT_FILE
from tailrace.store.operations import delete, delete_range, put
from tailrace.testing.clock import ManualClock
from tailrace.updates.pairs import decode_pairs
from tailrace.updates.position import START, Position
from tailrace.updates.sharding import shard_of
from tests.store.conftest import WAIT_S, HeldSyncer, Opens


def log_of(store: Store) -> list[dict[str, object]]:
    """Every update in the store's log up to its horizon, as a reader outside sees it."""
    source = RocksDBSource(store.path, line="l", era=store.era, shards=store.options.shards, horizon=store)
    head = source.bounds().through
    stop = threading.Event()
    rows: list[dict[str, object]] = []
    for batch in source.read(START, stop=stop):
        rows += batch.updates.to_pylist()
        if batch.through >= head:
            stop.set()
    source.close()
    return rows


def test_what_was_written_can_be_read(store: Store) -> None:
    store.write([put("users", b"1", {"name": "Ada", "note": None}), put("users", b"2", b"raw")])

    first, second, absent = store.get("users", [b"1", b"2", b"3"])

    assert first is not None
    assert decode_pairs(first) == {"name": b"Ada", "note": None}
    assert (second, absent) == (b"raw", None)


def test_a_write_takes_one_sequence_for_its_header_and_one_per_operation(store: Store) -> None:
    first = store.write([put("t", b"a", b"1"), delete("t", b"b")])
    second = store.write([put("other", b"a", b"1")])

    assert (first.first, first.last, first.position) == (2, 3, Position(1, 3))
    assert (second.first, second.last, second.position) == (5, 5, Position(1, 5))
    assert store.latest_sequence() == store.safe_through() == 5


def test_deletes_and_ranges_are_applied(store: Store) -> None:
    store.write([put("t", bytes([number]), b"v") for number in range(10)])
    store.write([delete("t", b"\x00"), delete_range("t", b"\x03", b"\x06")])

    assert [key[0] for key, _ in store.scan("t")] == [1, 2, 6, 7, 8, 9]


def test_a_scan_has_bounds_and_a_limit(store: Store) -> None:
    store.write([put("t", bytes([number]), b"v") for number in range(10)])

    assert [key[0] for key, _ in store.scan("t", b"\x02", b"\x05")] == [2, 3, 4]
    assert [key[0] for key, _ in store.scan("t", b"\x02", None, 2)] == [2, 3]
    assert list(store.scan("t", limit=0)) == []


def test_a_scan_shows_one_moment(store: Store) -> None:
    store.write([put("t", b"a", b"1"), put("t", b"b", b"1")])
    rows = store.scan("t")
    assert next(rows) == (b"a", b"1")

    store.write([put("t", b"b", b"2"), put("t", b"c", b"2")])

    assert list(rows) == [(b"b", b"1")]


def test_a_scan_may_rest_but_not_for_ever_while_others_write(open_store: Opens) -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    store.write([put("t", bytes([number]), b"v") for number in range(9)])
    resting, reading = store.scan("t"), store.scan("t")
    for rows in (resting, reading):
        next(rows)
    store.write([put("t", b"a", b"v")])
    clock.advance(200.0)
    next(reading)
    store.write([put("t", b"b", b"v")])
    clock.advance(200.0)
    store.write([put("t", b"c", b"v")])

    assert len(list(reading)) == 7
    with pytest.raises(Unavailable, match="a scan lost its place: it rested for more than 300 s while others wrote"):
        next(resting)


def test_a_table_that_nothing_was_written_to_does_not_exist(store: Store) -> None:
    with pytest.raises(NotFound, match="table 'absent' does not exist"):
        store.get("absent", [b"k"])
    with pytest.raises(NotFound, match="table '__tailrace' does not exist"):
        list(store.scan("__tailrace"))


def test_everything_is_there_after_closing_and_opening(open_store: Opens) -> None:
    store = open_store()
    store.write([put("users", b"1", b"one")])
    identity = store.identity()
    store.close()

    again = open_store(era=2)

    assert again.get("users", [b"1"]) == [b"one"]
    assert again.identity() == identity
    assert again.safe_through() == 2
    assert again.write([put("users", b"2", b"two")]).position == Position(2, 4)
    assert again.tables() == ["default", "users"]


def test_another_folder_has_another_identity(open_store: Opens, tmp_path: Path) -> None:
    assert open_store(tmp_path / "a").identity() != open_store(tmp_path / "b").identity()


def test_the_sequences_that_concurrent_writers_are_told_are_those_in_the_log(open_store: Opens) -> None:
    store = open_store(shards=4)
    told: dict[int, tuple[bytes, int]] = {}

    def writer(name: int) -> None:
        for number in range(60):
            keys = [b"%d-%d-%d" % (name, number, part) for part in range(1 + number % 3)]
            result = store.write([put("t", key, {"w": str(name)}) for key in keys])
            assert result.last - result.first + 1 == len(keys)
            for offset, key in enumerate(keys):
                told[result.first + offset] = (key, shard_of([key], 4))

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(writer, name) for name in range(8)]:
            done.result()

    rows = log_of(store)
    assert {row["sequence"]: (row["key"], row["shard"]) for row in rows} == told
    assert [row["sequence"] for row in rows] == sorted(told)


def test_the_log_holds_operations_shards_and_commit_times(open_store: Opens) -> None:
    clock = ManualClock(wall=1_700_000_000.5)
    store = open_store(shards=8, clock=clock)
    store.write([put("users", b"a", {"x": "1"}, shard=7), delete("users", b"b", shard=3), put("orders", b"c", b"raw")])

    rows = log_of(store)

    assert [(row["table"], row["operation"], row["key"], row["shard"]) for row in rows] == [
        ("users", "put", b"a", 7),
        ("users", "delete", b"b", 3),
        ("orders", "put", b"c", shard_of([b"c"], 8)),
    ]
    assert rows[0]["pairs"] == [("x", b"1")]
    assert rows[2]["pairs"] == [("value", b"raw")]
    assert {row["committed_at"].timestamp() for row in rows} == {1_700_000_000.5}  # type: ignore[attr-defined]


def test_a_range_without_a_shard_reaches_all_of_them(open_store: Opens) -> None:
    store = open_store(shards=3)
    store.write([put("t", b"a", b"1"), delete_range("t", b"a", b"z"), delete_range("t", b"b", b"c", shard=1)])

    rows = [row for row in log_of(store) if row["operation"] == "delete_range"]

    assert [(row["sequence"], row["shard"], row["key"]) for row in rows] == [
        (3, 0, b"a"),
        (3, 1, b"a"),
        (3, 2, b"a"),
        (4, 1, b"b"),
    ]


def test_commit_times_stand_still_while_the_clock_lies_in_the_past(open_store: Opens) -> None:
    clock = ManualClock(wall=2000.0)
    store = open_store(clock=clock)
    store.write([put("t", b"a", b"1")])
    clock.jump_wall(-1000)
    store.write([put("t", b"b", b"1")])
    store.close()

    again = open_store(clock=clock)
    again.write([put("t", b"c", b"1")])
    clock.jump_wall(1500)
    again.write([put("t", b"d", b"1")])

    times = [row["committed_at"].timestamp() for row in log_of(again)]  # type: ignore[attr-defined]
    assert times == [2000.0, 2000.0, 2000.0, 2500.0]


def test_the_horizon_wakes_who_waits_and_times_out(store: Store) -> None:
    assert store.wait_beyond(0, 0.01) == 0
    woken: list[int] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait_beyond(0, WAIT_S)))
    waiter.start()

    store.write([put("t", b"a", b"1")])
    waiter.join(WAIT_S)

    assert woken == [2]


def test_closing_wakes_who_waits_on_the_horizon(open_store: Opens) -> None:
    store = open_store()
    waiter = threading.Thread(target=store.wait_beyond, args=(0, 60.0))
    waiter.start()

    store.close()
    waiter.join(WAIT_S)

    assert not waiter.is_alive()


def test_closing_answers_what_is_under_way(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    store = open_store(syncer=syncer)
    futures = [store.submit([put("t", b"%d" % number, b"v")]) for number in range(100)]
    syncer.until_asked()
    closing = threading.Thread(target=store.close)
    closing.start()
    assert not any(future.done() for future in futures)

    syncer.release()
    closing.join(WAIT_S)

    assert [future.result(0).last for future in futures] == [2 * number for number in range(1, 101)]


def test_a_closed_store_takes_no_writes(open_store: Opens) -> None:
    store = open_store()
    store.close()
    with pytest.raises(Unavailable, match="is closing"):
        store.write([put("t", b"a", b"1")])


def test_a_closed_store_is_not_read(open_store: Opens) -> None:
    store = open_store()
    store.write([put("t", b"a", b"1")])
    store.close()
    with pytest.raises(Unavailable, match="is closed"):
        store.get("t", [b"a"])
    with pytest.raises(Unavailable, match="is closed"):
        list(store.scan("t"))


def test_a_store_is_opened_once(open_store: Opens) -> None:
    store = open_store()
    with pytest.raises(StoreFailed, match="is open already"):
        open_store()
    store.write([put("t", b"a", b"1")])


def test_a_folder_of_a_newer_format_is_refused(open_store: Opens, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / FORMAT_FILE).write_text(json.dumps({"format": 2, "shards": 1}))
    with pytest.raises(VersionTooNew, match="format version 2; this version of Tailrace knows up to 1"):
        open_store()


def test_a_broken_format_file_is_refused(open_store: Opens, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / FORMAT_FILE).write_text("{")
    with pytest.raises(StoreFailed, match="cannot be understood"):
        open_store()


def test_the_number_of_shards_is_fixed_for_life(open_store: Opens) -> None:
    open_store(shards=4).close()
    with pytest.raises(ConfigInvalid, match=r"store.shards: 8, but the store in .* was made with 4"):
        open_store(shards=8)
    open_store(shards=4)


def test_a_foreign_rocksdb_is_not_taken_over(open_store: Opens, tmp_path: Path) -> None:
    open_store().close()
    (tmp_path / "store" / FORMAT_FILE).unlink()
    with pytest.raises(StoreFailed, match="that no Tailrace store made"):
        open_store()


def test_a_path_that_is_no_folder_is_named(open_store: Opens, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreFailed, match=f"store {tmp_path / 'store'}"):
        open_store()


def test_tables_are_limited(open_store: Opens) -> None:
    store = open_store(max_tables=3)
    store.write([put("a", b"k", b"v"), put("b", b"k", b"v")])  # beside `default`

    with pytest.raises(UpdateInvalid, match=r"table 'c' would be one more than store.max_tables, 3"):
        store.write([put("a", b"k", b"changed"), put("c", b"k", b"v")])

    assert store.get("a", [b"k"]) == [b"v"]
    assert store.write([put("a", b"k", b"w")]).last == store.latest_sequence()


def test_a_refused_table_holds_up_no_other_write_of_its_group(open_store: Opens) -> None:
    syncer = HeldSyncer()
    store = open_store(max_tables=2, syncer=syncer)
    store.write([put("a", b"k", b"v")])
    futures = [store.submit([put(table, b"k", b"%d" % n)]) for n, table in enumerate(["a", "b", "a", "c", "a"])]

    errors = [future.exception(WAIT_S) for future in futures]

    assert [type(error) for error in errors] == [type(None), UpdateInvalid, type(None), UpdateInvalid, type(None)]
    assert store.get("a", [b"k"]) == [b"4"]


def test_sequences_rise_without_a_hole_in_the_log(store: Store) -> None:
    futures = [store.submit([put("t", b"%d" % number, b"v")]) for number in range(500)]
    lasts = np.array([future.result(WAIT_S).last for future in futures])
    assert (np.diff(lasts) == 2).all()
