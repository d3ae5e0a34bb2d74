"""What is missing or damaged is an error with its place, after everything before it was delivered; never a skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace.errors import LogBehind, LogCorrupt, LogDiverged, LogError, LogGap, LogTruncated, LogUnreadable
from tailrace.sources.rocksdb import RocksDBSource
from tailrace.updates.position import START, Checkpoint, Marker, Position, Witness
from tests.sources.rocksdb.reading import ERA, Row, all_rows, read_through, reading, rows_of, source_of
from tests.sources.rocksdb.written import BLOCK, log_of, logical, make_folder, put, write_batch


def batch_of(sequence: int, size: int = 1) -> bytes:
    return write_batch(sequence, put(b"k%d" % sequence, b"v" * size))


def rows(first: int, last: int, size: int = 1) -> list[Row]:
    return [Row(n, "default", "put", b"k%d" % n, (("value", b"v" * size),)) for n in range(first, last + 1)]


def log_through(last: int, size: int = 1, log_number: int | None = None) -> bytes:
    return log_of([batch_of(n, size) for n in range(1, last + 1)], log_number)


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def read_until_error(source: RocksDBSource, after: Position = START) -> tuple[list[Row], LogError]:
    """What came before the error, which the caller looks at."""
    found: list[Row] = []
    with reading(source, after) as batches:
        try:
            for batch in batches:
                found.extend(rows_of(batch.updates))
        except LogError as error:
            return found, error
    raise AssertionError("the log was read to its end without an error")


def test_damage_in_the_middle_stops_delivery_right_before_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(9, size=100)})
    place = len(log_through(4, size=100))
    flip(folder / "000004.log", place + 40)
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 4, size=100)
    assert isinstance(error, LogCorrupt)
    assert (error.path, error.offset) == (str(folder / "000004.log"), place)


def test_damage_to_a_length_is_noticed_once_the_log_goes_on_after_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(900, size=100)})
    place = len(log_through(4, size=100))
    flip(folder / "000004.log", place + 5)  # the length's high byte
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 4, size=100)
    assert isinstance(error, LogCorrupt)
    assert error.offset == place


def test_damage_at_the_tail_is_the_head_until_bytes_follow_it(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "db", {4: log_through(5)}) / "000004.log"
    place = len(log_through(4))
    flip(path, place + 20)
    source = source_of(path.parent, poll_s=0.02)
    assert all_rows(source) == rows(1, 4)
    with reading(source) as batches:
        assert next(batches).through == Position(ERA, 4)
        with open(path, "ab") as log:
            log.write(logical(batch_of(6), log.tell()))
        with pytest.raises(LogCorrupt) as caught:
            next(batches)
    assert caught.value.offset == place


def test_a_record_that_is_being_written_is_delivered_when_it_is_whole(tmp_path: Path) -> None:
    whole = log_through(3, size=50_000)  # each spans blocks
    path = make_folder(tmp_path / "db", {4: whole[: len(log_through(2, size=50_000)) + 40_000]}) / "000004.log"
    source = source_of(path.parent)
    with reading(source) as batches:
        assert rows_of(next(batches).updates) == rows(1, 2, size=50_000)
        with open(path, "ab") as log:
            log.write(whole[path.stat().st_size :])
        assert rows_of(next(batches).updates) == rows(3, 3, size=50_000)


@pytest.mark.parametrize("log_number", [None, 4])
def test_a_torn_tail_ends_a_file_whose_successor_goes_on(tmp_path: Path, log_number: int | None) -> None:
    torn = log_through(5, log_number=log_number)[:-3]
    folder = make_folder(tmp_path / "db", {4: torn, 9: log_of([batch_of(5), batch_of(6)])})
    assert all_rows(source_of(folder)) == rows(1, 6)


def test_a_torn_tail_is_damage_if_the_successor_does_not_go_on(tmp_path: Path) -> None:
    torn = log_through(5)[:-3]
    folder = make_folder(tmp_path / "db", {4: torn, 9: log_of([batch_of(6)])})
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 4)
    assert isinstance(error, LogCorrupt)
    assert error.offset == len(log_through(4))


def test_damage_in_a_recycled_file_is_known_by_what_follows_in_the_next_block(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(700, size=100, log_number=4)})
    place = len(log_through(4, size=100, log_number=4))
    flip(folder / "000004.log", place + 40)
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 4, size=100)
    assert isinstance(error, LogCorrupt)
    assert error.offset == place


def test_a_gap_stops_the_reader_with_its_place(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([batch_of(1), batch_of(2), batch_of(9)])})
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 2)
    assert isinstance(error, LogGap)
    assert (error.offset, error.found, error.expected_after) == (len(log_through(2)), 9, 2)


def test_a_gap_can_be_a_notice(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([batch_of(1), batch_of(2), batch_of(9)])})
    batches = read_through(source_of(folder, on_gap="notice"), 9)
    losses = [batch.loss for batch in batches if batch.loss is not None]
    assert [(loss.after, loss.until) for loss in losses] == [(Position(ERA, 2), Position(ERA, 8))]
    assert [row for batch in batches for row in rows_of(batch.updates)] == rows(1, 2) + rows(9, 9)


GAP_FROM_6_TO_10 = [batch_of(n) for n in (*range(1, 6), *range(11, 21))]


@pytest.mark.parametrize("on_gap", ["stop", "notice"])
@pytest.mark.parametrize("after", [10, 11, 15])
def test_a_gap_before_the_place_where_reading_starts_is_nothing_to_it(tmp_path: Path, on_gap: str, after: int) -> None:
    source = source_of(make_folder(tmp_path / "db", {4: log_of(GAP_FROM_6_TO_10)}), on_gap=on_gap)
    assert source.locate(witnessed(source, 15)).offset == len(log_of(GAP_FROM_6_TO_10[:10]))
    batches = read_through(source, 20, Position(ERA, after))
    assert [row for batch in batches for row in rows_of(batch.updates)] == rows(after + 1, 20)
    assert all(batch.loss is None for batch in batches)


def test_of_a_gap_around_the_place_where_reading_starts_what_follows_it_is_missing(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of(GAP_FROM_6_TO_10)})
    lost, *_ = read_through(source_of(folder, on_gap="notice"), 20, Position(ERA, 8))
    assert lost.loss is not None
    assert (lost.loss.after, lost.loss.until) == (Position(ERA, 8), Position(ERA, 10))
    found, error = read_until_error(source_of(folder), Position(ERA, 8))
    assert (found, type(error)) == ([], LogGap)


def test_a_sequence_that_goes_back_within_a_file_is_damage(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_of([batch_of(1), batch_of(2), batch_of(2)])})
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 2)
    assert isinstance(error, LogCorrupt)


def test_an_empty_batch_may_repeat_the_last_sequence(tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path / "db", {4: log_of([batch_of(1), batch_of(2)]), 6: log_of([write_batch(2), batch_of(3)])}
    )
    assert all_rows(source_of(folder)) == rows(1, 3)


def test_a_file_that_begins_with_older_writes_is_another_history(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(5), 9: log_of([batch_of(3)])})
    found, error = read_until_error(source_of(folder))
    assert found == rows(1, 5)
    assert isinstance(error, LogDiverged)


def test_what_was_deleted_before_reading_began_is_truncation(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {9: log_of([batch_of(10), batch_of(11)])})
    with pytest.raises(LogTruncated) as caught:
        read_through(source_of(folder), 11, Position(ERA, 4))
    assert (caught.value.after, caught.value.oldest) == (4, 9)
    assert source_of(folder).bounds().after == Position(ERA, 9)


def test_what_was_flushed_and_deleted_is_truncation_even_if_nothing_was_written_since(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {9: b""}, last_sequence=20)
    with pytest.raises(LogTruncated):
        read_through(source_of(folder), 21, Position(ERA, 4))
    assert source_of(folder).bounds() == (Position(ERA, 20), Position(ERA, 20))


def test_a_file_that_shrinks_below_its_reader_is_truncation(tmp_path: Path) -> None:
    path = make_folder(tmp_path / "db", {4: log_through(9)}) / "000004.log"
    with reading(source_of(path.parent, poll_s=0.02)) as batches:
        assert next(batches).through == Position(ERA, 9)
        os.truncate(path, 30)
        with pytest.raises(LogTruncated):
            next(batches)


def test_files_that_vanish_between_two_batches_are_truncation(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(9)})
    with reading(source_of(folder, poll_s=0.02)) as batches:
        assert next(batches).through == Position(ERA, 9)
        (folder / "000004.log").unlink()
        (folder / "000007.log").write_bytes(log_of([batch_of(50)]))
        with pytest.raises(LogTruncated) as caught:
            next(batches)
    assert caught.value.oldest == 49


def test_a_wiped_and_recreated_datastore_is_another_history(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {14: log_through(9)})
    with reading(source_of(folder, poll_s=0.02)) as batches:
        assert next(batches).through == Position(ERA, 9)
        (folder / "000014.log").unlink()
        (folder / "000004.log").write_bytes(log_through(2))
        with pytest.raises(LogDiverged):
            next(batches)


def test_a_folder_that_is_no_rocksdb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadable, match="IDENTITY"):
        source_of(tmp_path)


# ---- locate -------------------------------------------------------------------------------------------------------


def witnessed(source: RocksDBSource, sequence: int) -> Marker:
    return Marker(source.checkpoint(Position(ERA, sequence)))


def test_a_marker_is_located_at_the_record_after_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {4: log_through(9)})
    source = source_of(folder)
    address = source.locate(witnessed(source, 4))
    assert address == (str(folder / "000004.log"), len(log_through(4)))


def test_the_witness_is_made_of_all_stored_checksums_of_the_record_that_holds_the_position(tmp_path: Path) -> None:
    log = log_of([batch_of(1), write_batch(2, put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"x" * 70_000))])
    source = source_of(make_folder(tmp_path / "db", {4: log}))
    first, middle, last = (
        int.from_bytes(log[place : place + 4], "little") for place in (len(log_through(1)), BLOCK, 2 * BLOCK)
    )
    expected = Witness("", (31 * (31 * first + middle) + last) % 2**32)
    assert [source.checkpoint(Position(ERA, n)).witness for n in (2, 3, 4)] == [expected] * 3
    assert read_through(source, 4)[-1].checkpoint == Checkpoint(Position(ERA, 4), expected)


def test_another_record_at_the_position_is_divergence(tmp_path: Path) -> None:
    source = source_of(make_folder(tmp_path / "db", {4: log_through(9)}))
    marker = witnessed(source, 4)
    other = source_of(make_folder(tmp_path / "other", {4: log_of([batch_of(n, size=2) for n in range(1, 10)])}))
    with pytest.raises(LogDiverged) as caught:
        other.locate(marker)
    assert not isinstance(caught.value, LogBehind)


@pytest.mark.parametrize("left", [7, 8, 11, None])  # bytes of a block for the record's first piece; None: it fills one
def test_a_record_that_differs_only_behind_its_first_piece_is_divergence(tmp_path: Path, left: int | None) -> None:
    before, size = batch_of(1), 40_000
    if left is not None:
        before, size = batch_of(1, 20_000 + BLOCK - left - len(log_through(1, size=20_000))), 1
    logs = {name: log_of([before, write_batch(2, put(b"k", b"v" * size + name))]) for name in (b"a", b"b")}
    assert logs[b"a"][:BLOCK] == logs[b"b"][:BLOCK]
    source, other = (source_of(make_folder(tmp_path / name.decode(), {4: log})) for name, log in logs.items())
    marker = witnessed(source, 2)
    assert source.locate(marker).offset == len(logs[b"a"])
    with pytest.raises(LogDiverged, match="holds another record"):
        other.locate(marker)


def test_a_marker_beyond_the_head_is_told_apart(tmp_path: Path) -> None:
    source = source_of(make_folder(tmp_path / "db", {4: log_through(9)}))
    with pytest.raises(LogBehind) as caught:
        source.locate(Marker(Checkpoint(Position(ERA, 10), Witness("", 1))))
    assert caught.value.head == str(Position(ERA, 9))
    with pytest.raises(LogBehind):
        read_through(source, 11, Position(ERA, 10))


def test_a_marker_far_beyond_the_head_names_where_the_log_ends(tmp_path: Path) -> None:
    logs = {"written": {4: log_through(7)}, "flushed": {9: b""}, "without": {}}
    for name, files in logs.items():
        source = source_of(make_folder(tmp_path / name, files, last_sequence=7))
        with pytest.raises(LogBehind) as caught:
            source.locate(Marker(Checkpoint(Position(ERA, 10), Witness("", 1))))
        assert caught.value.head == str(Position(ERA, 7)), name


def test_a_log_that_was_restored_beneath_its_source_names_where_it_ends(tmp_path: Path) -> None:
    source = source_of(make_folder(tmp_path / "db", {4: log_through(12)}))
    marker = read_through(source, 12)[-1].checkpoint
    make_folder(tmp_path / "db", {4: log_through(7)})
    with pytest.raises(LogBehind) as caught:
        source.locate(Marker(marker))
    assert caught.value.head == str(Position(ERA, 7))


def test_a_marker_right_before_the_oldest_file_is_located_without_its_witness(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {9: log_of([batch_of(10), batch_of(11)])})
    assert source_of(folder).locate(Marker(Checkpoint(Position(ERA, 9), Witness("", 1)))).offset == 0
    with pytest.raises(LogTruncated):
        source_of(folder).locate(Marker(Checkpoint(Position(ERA, 8), Witness("", 1))))
