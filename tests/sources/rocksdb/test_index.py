"""The position index: sparse, saved atomically, and never trusted without a look at the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import LogUnreadable, VersionTooNew
from tailrace.sources.rocksdb.index import SPACING_BYTES, Entry, PositionIndex
from tailrace.updates.position import Checkpoint, Marker, Position
from tests.sources.rocksdb.reading import ERA, all_rows, read_through, rows_of, source_of
from tests.sources.rocksdb.written import log_of, make_folder, put, write_batch

VALUE_BYTES = 5000
RECORDS = 1000  # about five megabytes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    batches = [write_batch(n, put(b"k%d" % n, bytes(VALUE_BYTES))) for n in range(1, RECORDS + 1)]
    return make_folder(tmp_path / "db", {4: log_of(batches)})


def entry(sequence: int, offset: int, number: int = 4) -> Entry:
    return Entry(sequence, number, offset, 99)


def test_entries_are_about_a_megabyte_apart() -> None:
    index = PositionIndex(None, "id")
    for number in range(1, 400):
        index.note(entry(number, number * SPACING_BYTES // 100))
    assert len(index) == 3
    assert index.before(250, 4) == entry(200, 2 * SPACING_BYTES)


def test_an_index_that_was_saved_is_found_again_by_the_same_datastore_only(tmp_path: Path) -> None:
    path = tmp_path / "positions.index"
    index = PositionIndex(path, "id")
    index.note(entry(7, SPACING_BYTES))
    index.save()
    assert PositionIndex(path, "id").before(10, 4) == entry(7, SPACING_BYTES)
    assert PositionIndex(path, "another").before(10, 4) is None


def test_a_damaged_index_is_an_empty_one_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "positions.index"
    index = PositionIndex(path, "id")
    index.note(entry(7, SPACING_BYTES))
    index.save()
    whole = path.read_bytes()
    for damaged in (b"", b"x" * 40, whole[:-1], whole[:-1] + b"!"):
        path.write_bytes(damaged)
        assert len(PositionIndex(path, "id")) == 0
    path.write_bytes(whole[:4] + (2).to_bytes(4, "little") + whole[8:])
    with pytest.raises(VersionTooNew):
        PositionIndex(path, "id")


def test_a_folder_that_takes_no_index_does_not_stop_readers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.sources.rocksdb.index.SAVE_EVERY", 1)
    (tmp_path / "index").write_text("a file where the folder should be")
    source = source_of(folder)
    source._index._path = tmp_path / "index" / "positions.index"
    assert len(all_rows(source)) == RECORDS
    with pytest.raises(LogUnreadable, match=r"positions\.index"):
        source.close()


def test_reading_starts_near_the_position_and_finds_the_same(folder: Path, tmp_path: Path) -> None:
    first = source_of(folder, index_dir=tmp_path / "index")
    read_through(first, RECORDS)
    first.close()
    again = source_of(folder, index_dir=tmp_path / "index")
    assert len(again._index) >= 3
    after = Position(ERA, 900)
    assert [row.sequence for row in all_rows(again, after)] == list(range(901, RECORDS + 1))
    start = again._log.start(900, 1 << 20)
    assert start is not None
    assert start.cursor.offset > 3 * SPACING_BYTES
    start.cursor.close()


def test_an_index_that_is_wrong_is_not_believed(folder: Path, tmp_path: Path) -> None:
    index = PositionIndex(tmp_path / "index" / "positions.index", "made-by-hand")
    for number in range(2, 5):
        index.note(entry(100 * number, number * SPACING_BYTES + 17))
    index.save()
    source = source_of(folder, index_dir=tmp_path / "index")
    assert [row.sequence for row in all_rows(source, Position(ERA, 500))] == list(range(501, RECORDS + 1))
    marker = Marker(Checkpoint(Position(ERA, 450), None))
    assert source.locate(marker) == source_of(folder).locate(marker)


def test_an_index_of_another_log_with_records_at_the_same_places_is_not_believed(folder: Path, tmp_path: Path) -> None:
    made = source_of(folder, index_dir=tmp_path / "index")
    read_through(made, RECORDS)
    made.close()
    later = [write_batch(300 + n, put(b"k%d" % n, bytes(VALUE_BYTES))) for n in range(1, RECORDS + 1)]
    make_folder(folder, {3: log_of([write_batch(n, put(b"k", b"")) for n in range(1, 301)]), 4: log_of(later)})
    source = source_of(folder, index_dir=tmp_path / "index")
    assert len(source._index) >= 3
    found = read_through(source, 300 + RECORDS, Position(ERA, 600))
    assert [row.sequence for batch in found for row in rows_of(batch.updates)] == list(range(601, 300 + RECORDS + 1))
