"""The physical layer and the kinds of record that only newer versions of RocksDB write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import LogCorrupt, VersionTooNew
from tailrace.sources.rocksdb.cursor import LogCursor
from tailrace.sources.rocksdb.files import LogFile, open_log
from tailrace.updates.header import encode_header
from tests.sources.rocksdb.reading import Row, all_rows, read_through, source_of
from tests.sources.rocksdb.written import log_of, logical, make_folder, physical, put, text, varint, write_batch

ONE = write_batch(1, put(b"a", b"1"))
TWO = write_batch(2, put(b"b", b"2"))
A = Row(1, "default", "put", b"a", (("value", b"1"),))
B = Row(2, "default", "put", b"b", (("value", b"2"),))


def payloads_in(path: Path, read_bytes: int) -> list[bytes]:
    file = LogFile(4, path)
    opened = open_log(path.parent, file)
    assert opened is not None
    cursor = LogCursor(opened[0], file, 0, read_bytes)
    found = []
    further = True
    while further:
        further = cursor.advance()
        found += [cursor.payload(record) for record in range(cursor.taken, cursor.available)]
        cursor.taken = cursor.available
    cursor.close()
    return found


@given(
    st.lists(st.one_of(st.integers(0, 300), st.integers(32700, 32790), st.integers(0, 140_000)), max_size=12),
    st.sampled_from([None, 4]),
    st.sampled_from([40_000, 70_000, 1 << 20]),
)
def test_records_of_any_length_come_out_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], log_number: int | None, read_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "000004.log"
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    path.write_bytes(log_of(payloads, log_number))
    assert payloads_in(path, read_bytes) == payloads


@pytest.mark.parametrize("kind", [130, 131])
def test_information_about_the_log_before_is_read_over(tmp_path: Path, kind: int) -> None:
    number = 4 if kind == 131 else None
    begin = physical(kind, bytes(24), number)
    folder = make_folder(tmp_path / "db", {4: log_of([ONE, TWO], number, begin)})
    assert all_rows(source_of(folder)) == [A, B]


def test_an_unknown_record_that_says_so_may_be_ignored(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([ONE, TWO], begin=physical(200, b"from the future"))})
    assert all_rows(source_of(folder)) == [A, B]


def test_user_defined_timestamps_are_cut_off_the_keys(tmp_path: Path) -> None:
    begin = physical(10, (0).to_bytes(4, "little") + (8).to_bytes(2, "little"))
    batch = write_batch(1, put(b"key" + bytes(8), b"v"), b"\x0f" + text(b"b" + bytes(8)) + text(b"e" + bytes(8)))
    folder = make_folder(tmp_path / "db", {4: log_of([batch], begin=begin)})
    assert [(row.key, row.pairs) for row in all_rows(source_of(folder))] == [
        (b"key", (("value", b"v"),)),
        (b"b", (("end", b"e"),)),
    ]


def test_a_block_may_be_padded_early(tmp_path: Path) -> None:
    log = log_of([ONE])
    log += bytes(32768 - len(log))
    folder = make_folder(tmp_path / "db", {4: log + logical(TWO, len(log))})
    assert all_rows(source_of(folder)) == [A, B]


def test_preallocated_space_is_the_head(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([ONE, TWO]) + bytes(100_000)})
    assert all_rows(source_of(folder)) == [A, B]


def test_a_value_with_a_write_time_and_a_blob_reference(tmp_path: Path) -> None:
    batch = write_batch(1, b"\x18" + text(b"t") + text(b"timed" + bytes(8)), b"\x11" + text(b"r") + text(b"ref"))
    folder = make_folder(tmp_path / "db", {4: log_of([batch])})
    assert [(row.operation, row.pairs) for row in all_rows(source_of(folder))] == [
        ("put", (("value", b"timed"),)),
        ("put", (("blob_index", b"ref"),)),
    ]


def test_a_family_without_a_name_goes_by_its_number(tmp_path: Path) -> None:
    batch = write_batch(1, put(b"a", b"1", family=7), put(b"b", b"2", family=90))
    folder = make_folder(tmp_path / "db", {4: log_of([batch])})
    assert [row.table for row in all_rows(source_of(folder))] == ["seven", "column_family:90"]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b"\x7e", "unknown kind"),
        (b"\x01" + text(b"key") + varint(1000) + b"short", "beyond its record"),
        (b"\x12" + put(b"a", b"1") + b"\x0a" + text(b"xid"), "write-prepared"),
        (b"\x0b" + text(b"xid"), "no longer holds what it prepared"),
    ],
)
def test_an_entry_that_cannot_be_read_is_an_error_with_its_place(tmp_path: Path, entry: bytes, reason: str) -> None:
    bad = write_batch(2, entry, count=0 if entry[0] == 0x0B else 1)
    folder = make_folder(tmp_path / "db", {4: log_of([ONE, bad])})
    with pytest.raises(LogCorrupt, match=reason) as caught:
        read_through(source_of(folder), 3)
    assert caught.value.offset == len(log_of([ONE]))
    assert caught.value.path.endswith("000004.log")


def test_a_wrong_number_of_entries_is_an_error(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([write_batch(1, put(b"a", b"1"), count=2)])})
    with pytest.raises(LogCorrupt, match="another number of entries"):
        read_through(source_of(folder), 3)


def _headed(folder: Path, header: bytes, entries: int) -> Path:
    batch = write_batch(1, put(b"h", header, family=8), *[put(b"k", b"v")] * entries)
    make_folder(folder, {4: log_of([batch])})
    edit = varint(200) + varint(8) + varint(201) + text(b"__tailrace")
    (folder / "MANIFEST-000001").write_bytes(log_of([edit]))
    return folder


def test_a_header_that_names_more_operations_than_follow_is_an_error(tmp_path: Path) -> None:
    folder = _headed(tmp_path / "db", encode_header(5, 1, np.zeros(3, np.int32)), 2)
    with pytest.raises(LogCorrupt, match="header"):
        read_through(source_of(folder), 3)


def test_a_header_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    header = bytearray(encode_header(5, 1, np.zeros(2, np.int32)))
    header[3] = 2
    folder = _headed(tmp_path / "db", bytes(header), 2)
    with pytest.raises(VersionTooNew):
        read_through(source_of(folder), 3)


def test_an_older_log_behind_the_end_of_a_recycled_one_is_not_read(tmp_path: Path) -> None:
    live = log_of([ONE], log_number=4)
    older = logical(TWO, len(live), log_number=2)  # whole, valid, and even of the following sequence
    folder = make_folder(tmp_path / "db", {4: live + older})
    assert all_rows(source_of(folder)) == [A]
    (folder / "000007.log").write_bytes(log_of([TWO], log_number=7))
    assert all_rows(source_of(folder)) == [A, B]
