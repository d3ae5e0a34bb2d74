"""Reading the log of a RocksDB that is being written, in this process, through rocksdict."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rocksdict
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sources.rocksdb import identity
from tailrace.sources.rocksdb.files import list_logs
from tailrace.updates.header import HEADER_FAMILY, HEADER_KEY, encode_header
from tailrace.updates.pairs import decode_pairs, encode_pairs
from tailrace.updates.position import START, Position
from tailrace.updates.sharding import shard_of
from tests.sources.rocksdb.reading import (
    ERA,
    WAIT_S,
    InThread,
    Row,
    all_rows,
    read_through,
    reading,
    rows_of,
    source_of,
)

HOUR_S = 3600.0


def open_database(folder: Path, families: tuple[str, ...] = (), archived: bool = False) -> Any:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    if archived:
        options.set_wal_ttl_seconds(3600)
    named = {name: rocksdict.Options(raw_mode=True) for name in families}
    return (
        rocksdict.Rdict(str(folder), options, column_families=named) if named else rocksdict.Rdict(str(folder), options)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def database(folder: Path) -> Iterator[Any]:
    database = open_database(folder, archived=True)
    yield database
    database.close()


def row(sequence: int, key: bytes, value: bytes) -> Row:
    return Row(sequence, "default", "put", key, (("value", value),))


# ---- waking -------------------------------------------------------------------------------------------------------


def test_a_commit_wakes_a_reader_at_the_head_without_the_poll(folder: Path, database: Any) -> None:
    database[b"a"] = b"1"
    with reading(source_of(folder, poll_s=HOUR_S)) as batches:
        assert rows_of(next(batches).updates) == [row(1, b"a", b"1")]
        waiting = threading.Thread(target=lambda: database.put(b"b", b"2"))
        waiting.start()
        assert rows_of(next(batches).updates) == [row(2, b"b", b"2")]
        waiting.join()


def test_a_reader_of_an_empty_log_wakes_at_the_first_commit_and_at_a_new_file(folder: Path, database: Any) -> None:
    reader = InThread(source_of(folder, poll_s=HOUR_S), wanted=2)
    database[b"a"] = b"1"
    assert reader.first.wait(WAIT_S)
    database.flush()
    database[b"b"] = b"2"
    assert reader.join() == [row(1, b"a", b"1"), row(2, b"b", b"2")]


def test_a_reader_at_the_head_ends_when_it_is_stopped(folder: Path, database: Any) -> None:
    reader = InThread(source_of(folder, poll_s=HOUR_S), wanted=1)
    reader.stop.set()
    assert reader.join() == []


class Held:
    """A horizon that the test moves."""

    def __init__(self, through: int) -> None:
        self._through = through
        self._moved = threading.Condition()

    def safe_through(self) -> int:
        return self._through

    def move(self, through: int) -> None:
        with self._moved:
            self._through = through
            self._moved.notify_all()

    def wait_beyond(self, sequence: int, timeout_s: float) -> int:
        with self._moved:
            self._moved.wait_for(lambda: self._through > sequence, timeout_s)
            return self._through


def test_nothing_beyond_the_horizon_is_delivered(folder: Path, database: Any) -> None:
    for number in range(1, 11):
        database[b"%d" % number] = b"v"
    horizon = Held(4)
    source = source_of(folder, horizon=horizon, poll_s=HOUR_S)
    assert source.bounds().through == Position(ERA, 4)
    with reading(source) as batches:
        batch = next(batches)
        assert (batch.through, batch.at_head, batch.updates.num_rows) == (Position(ERA, 4), True, 4)
        moving = threading.Thread(target=horizon.move, args=(7,))
        moving.start()
        assert [row.sequence for row in rows_of(next(batches).updates)] == [5, 6, 7]
        moving.join()


def test_a_write_batch_is_held_back_whole(folder: Path, database: Any) -> None:
    database[b"a"] = b"1"
    batch = rocksdict.WriteBatch(raw_mode=True)
    for number in range(5):
        batch.put(b"%d" % number, b"v")
    database.write(batch)
    horizon = Held(3)
    with reading(source_of(folder, horizon=horizon)) as batches:
        assert next(batches).through == Position(ERA, 1)
        horizon.move(6)
        assert next(batches).through == Position(ERA, 6)


# ---- writers and files --------------------------------------------------------------------------------------------


def test_readers_keep_up_with_writers_while_files_are_archived(folder: Path, database: Any) -> None:
    count, writers = 2500, 3
    source = source_of(folder)
    readers = [InThread(source, wanted=count * writers) for _ in range(2)]

    def write(writer: int) -> None:
        for number in range(count):
            database[b"%d-%d" % (writer, number)] = b"x" * (number % 700)
            if number % 500 == 499:
                database.flush()

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (reader.join() for reader in readers)
    assert first == second
    assert [found.sequence for found in first] == list(range(1, count * writers + 1))
    for writer in range(writers):
        own = [found.key for found in first if found.key.startswith(b"%d-" % writer)]
        assert own == [b"%d-%d" % (writer, number) for number in range(count)]
    assert (folder / "archive").exists()
    assert all_rows(source_of(folder)) == first  # from the archive


def test_a_reader_that_lags_reads_on_in_a_file_that_was_archived_and_deleted(folder: Path, database: Any) -> None:
    for number in range(2000):
        database[b"%d" % number] = b"x" * 100
    with reading(source_of(folder), max_batch_bytes=40_000) as batches:
        found = rows_of(next(batches).updates)
        held = list_logs(folder)[0].path.name
        database.flush()
        database[b"after"] = b"y"
        assert (folder / "archive" / held).exists()
        (folder / "archive" / held).unlink()
        while found[-1].key != b"after":
            found += rows_of(next(batches).updates)
    assert [row.sequence for row in found] == list(range(1, 2002))


def test_a_database_that_is_opened_again_goes_on(folder: Path) -> None:
    rows = []
    for run in range(4):
        database = open_database(folder, archived=True)
        if run != 2:  # one run writes nothing
            database[b"run%d" % run] = b"v"
            rows.append(row(len(rows) + 1, b"run%d" % run, b"v"))
        database.close()
    assert all_rows(source_of(folder)) == rows


def test_bounds_after_a_flush_that_emptied_the_log(folder: Path) -> None:
    database = open_database(folder)
    for number in range(5):
        database[b"%d" % number] = b"v"
    database.flush()
    source = source_of(folder)
    assert source.bounds() == (Position(ERA, 5), Position(ERA, 5))
    database[b"next"] = b"v"
    assert source.bounds() == (Position(ERA, 5), Position(ERA, 6))
    assert all_rows(source, Position(ERA, 5)) == [row(6, b"next", b"v")]
    database.close()


def test_a_family_that_was_made_while_reading_is_known_by_name(folder: Path, database: Any) -> None:
    database[b"a"] = b"1"
    with reading(source_of(folder, poll_s=HOUR_S)) as batches:
        assert next(batches).through.sequence == 1
        made = database.create_column_family("later", rocksdict.Options(raw_mode=True))
        made[b"b"] = b"2"
        assert [found.table for found in rows_of(next(batches).updates)] == ["later"]
        made.close()


def test_identity_is_what_rocksdb_wrote(folder: Path, database: Any) -> None:
    assert identity(folder) == (folder / "IDENTITY").read_text()
    assert len(identity(folder)) == 36


# ---- what values mean ---------------------------------------------------------------------------------------------

values = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=8), st.none() | st.binary(max_size=40), max_size=5
    ).map(encode_pairs),
    st.builds(lambda pairs, cut: encode_pairs(pairs)[:cut], st.just({"a": "1", "b": None}), st.integers(0, 20)),
)
operations = st.lists(
    st.tuples(st.sampled_from(["default", "t1", "täble"]), st.binary(max_size=30), st.none() | values), max_size=8
)


@given(st.lists(operations, max_size=6), st.sampled_from([200, 5000, 1 << 20]), st.sampled_from([1, 7]))
def test_random_write_batches(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Any], max_batch_bytes: int, shards: int
) -> None:
    folder = tmp_path_factory.mktemp("random") / "db"
    database = open_database(folder, ("t1", "täble"))
    expected = []
    for written in batches:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for table, key, value in written:
            handle = database.get_column_family_handle(table)
            pairs = None
            if value is None:
                batch.delete(key, handle)
            else:
                batch.put(key, value, handle)
                pairs = tuple(decode_pairs(value).items())
            operation = "delete" if value is None else "put"
            expected.append((Row(len(expected) + 1, table, operation, key, pairs), shard_of([key], shards)))
        database.write(batch)
    source = source_of(folder, shards=shards)
    found = []
    if expected:
        for batch in read_through(source, len(expected), START, max_batch_bytes=max_batch_bytes):
            found += zip(rows_of(batch.updates), batch.updates.column("shard").to_pylist(), strict=True)
    assert found == expected
    database.close()


def test_headers_give_commit_time_and_shards(folder: Path) -> None:
    database = open_database(folder, (HEADER_FAMILY, "t"))
    header, table = database.get_column_family_handle(HEADER_FAMILY), database.get_column_family_handle("t")
    batch = rocksdict.WriteBatch(raw_mode=True)
    for committed_at, shards in ((1_000_001, [5, 6, 7]), (2_000_002, [4, 4])):  # as a group commit merges two
        batch.put(HEADER_KEY, encode_header(committed_at, 1, np.array(shards, dtype=np.int32)), header)
        for shard in shards:
            batch.put(b"k%d" % shard, encode_pairs({"a": "1"}), table)
    database.write(batch)
    database[b"foreign"] = b"value"
    source = source_of(folder, shards=8)
    (updates,) = [batch.updates for batch in read_through(source, 8)]
    assert updates.column("sequence").to_pylist() == [2, 3, 4, 6, 7, 8]
    assert updates.column("shard").to_pylist() == [5, 6, 7, 4, 4, shard_of([b"foreign"], 8)]
    times = updates.column("committed_at").cast("int64").to_pylist()
    assert times == [1_000_001] * 3 + [2_000_002] * 2 + [None]
    assert set(updates.column("era").to_pylist()) == {ERA}
    assert set(updates.column("index").to_pylist()) == {0}
    (rest,) = [batch.updates for batch in read_through(source, 8, Position(ERA, 3))]
    assert rest.column("shard").to_pylist() == [7, 4, 4, shard_of([b"foreign"], 8)]
    database.close()


def test_a_range_that_spans_all_shards_comes_once_per_shard(folder: Path) -> None:
    database = open_database(folder, (HEADER_FAMILY, "t"))
    header, table = database.get_column_family_handle(HEADER_FAMILY), database.get_column_family_handle("t")
    batch = rocksdict.WriteBatch(raw_mode=True)
    batch.put(HEADER_KEY, encode_header(1, 1, np.array([2, -1, 1], dtype=np.int32)), header)
    batch.put(b"a", encode_pairs({}), table)
    batch.delete_range(b"b", b"e", table)
    batch.put(b"c", encode_pairs({"n": None}), table)
    database.write(batch)
    database.delete_range(b"x", b"z")
    updates = pa.Table.from_batches([found.updates for found in read_through(source_of(folder, shards=3), 5)])
    told = list(zip(*(updates.column(name).to_pylist() for name in ("sequence", "shard", "key")), strict=True))
    assert told == [(2, 2, b"a"), *[(3, n, b"b") for n in range(3)], (4, 1, b"c"), *[(5, n, b"x") for n in range(3)]]
    assert updates.column("pairs").to_pylist()[1:4] == [[("end", b"e")]] * 3
    database.close()


def test_a_live_batch_carries_nothing_of_a_large_one_before_it(folder: Path, database: Any) -> None:
    batch = rocksdict.WriteBatch(raw_mode=True)
    for number in range(50_000):
        batch.put(b"%d" % number, b"v")
    database.write(batch)
    with reading(source_of(folder)) as batches:
        assert next(batches).updates.num_rows == 50_000
        database[b"live"] = b"v"
        live = next(batches).updates
    assert live.num_rows == 1
    assert live.serialize().size < 2000


def test_a_batch_is_about_as_large_as_asked_and_never_splits_a_write_batch(folder: Path, database: Any) -> None:
    for number in range(200):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for part in range(5):
            batch.put(b"%d-%d" % (number, part), b"x" * 400)
        database.write(batch)
    batches = read_through(source_of(folder), 1000, max_batch_bytes=50_000)
    assert all(batch.through.sequence % 5 == 0 for batch in batches)
    assert max(batch.updates.nbytes for batch in batches) < 60_000
    assert len(batches) < 15
    assert [batch.at_head for batch in batches] == [False] * (len(batches) - 1) + [True]
