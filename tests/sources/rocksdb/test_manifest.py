"""Column families' names as RocksDB keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
import rocksdict

from tailrace.errors import LogCorrupt, LogUnreadable
from tailrace.sources.rocksdb.manifest import read_manifest
from tests.sources.rocksdb.conftest import ScenarioWriter
from tests.sources.rocksdb.written import log_of, make_folder


def test_families_that_were_added_and_dropped_and_the_last_sequence(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    for name in ("one", "größe", "three"):
        made = database.create_column_family(name, rocksdict.Options(raw_mode=True))
        for number in range(50):
            made[b"%d" % number] = b"v"
        made.flush()
        made.close()
    database.drop_column_family("one")
    found = read_manifest(folder)
    assert found.families == {0: "default", 1: "one", 2: "größe", 3: "three"}
    assert found.last_sequence == 150
    database.close()
    again = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True), column_families={
        "größe": rocksdict.Options(raw_mode=True), "three": rocksdict.Options(raw_mode=True)})  # fmt: skip
    assert read_manifest(folder).families == {0: "default", 2: "größe", 3: "three"}
    again.close()


def test_an_older_rocksdb(write_scenario: ScenarioWriter) -> None:
    folder, _rows = write_scenario("kinds")
    assert read_manifest(folder).families == {0: "default", 1: "other"}


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogUnreadable, match="CURRENT"):
        read_manifest(tmp_path)


def test_a_damaged_manifest_is_an_error_with_its_place(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "db", {})
    path = folder / "MANIFEST-000001"
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupt) as caught:
        read_manifest(folder)
    assert (caught.value.path, caught.value.offset) == (str(path), 0)
    path.write_bytes(log_of([b"\x63"]))  # tag 99
    with pytest.raises(LogCorrupt, match="unknown tag 99"):
        read_manifest(folder)
