"""`tailrace check` finds what would go wrong, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import rocksdict

from tailrace.cli.roles.assembly import COORDINATION_FOLDER, STORE_FOLDER
from tailrace.cli.source_checks import retention
from tailrace.coordination.datasets import fix_shards
from tailrace.coordination.embedded import EmbeddedCoordinator
from tailrace.publisher.applications import ApplicationRecord
from tailrace.publisher.records import CoordinatorRecords
from tailrace.sources.interface import Bounds
from tailrace.store.engine import Store
from tailrace.store.options import StoreOptions
from tailrace.updates.position import Position
from tests.cli.conftest import Tailrace


def rocksdb(folder: Path, *, wal_keep_s: int) -> Path:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_ttl_seconds(wal_keep_s)
    database = rocksdict.Rdict(str(folder), options)
    database[b"key"] = b"value"
    database.flush()
    database.close()
    return folder


def written(folder: Path, text: str) -> Path:
    file = folder / "tailrace.toml"
    file.write_text("version = 1\n" + text)
    return file


def test_the_default_in_an_empty_folder_is_fine_and_nothing_is_made(tailrace: Tailrace, tmp_path: Path) -> None:
    said = tailrace("check")
    assert said.code == 0
    assert {line.split("\t")[0] for line in said.lines[1:]} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_rocksdb_that_keeps_its_log_is_fine(tailrace: Tailrace, tmp_path: Path) -> None:
    folder = rocksdb(tmp_path / "db", wal_keep_s=3600)
    said = tailrace("check", "--config", written(tmp_path, f'[dataset.shop]\nsource = "rocksdb://{folder}"\n'))
    assert said.code == 0, said.out
    assert "warning" not in said.out


def test_a_foreign_rocksdb_that_drops_its_log_is_a_warning(tailrace: Tailrace, tmp_path: Path) -> None:
    folder = rocksdb(tmp_path / "db", wal_keep_s=0)
    said = tailrace("check", "--config", written(tmp_path, f'[dataset.shop]\nsource = "rocksdb://{folder}"\n'))
    assert said.code == 0
    assert "open the database with WAL_ttl_seconds" in said.out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[dataset.shop]\nsource = "rocksdb:///nowhere/db"\n', "holds no RocksDB"),
        ('[dataset.shop]\nsource = "store://127.0.0.1:9/shop"\n', "127.0.0.1:9: "),
        (
            '[dataset.d]\n[store]\ndataset = "d"\n[node]\nlisten = "0.0.0.0:7400"\n',
            "set [tls] and node.credentials_file",
        ),
        ('[dataset.d]\n[store]\ndataset = "d"\n[node]\nlisten = "here"\n', "the port is missing"),
        (
            '[dataset.d]\n[store]\ndataset = "d"\nlisten = "127.0.0.1:7400"\n[node]\ncredentials_file = "no.json"\n',
            "`tailrace credential issue`",
        ),
        ('[dataset.d]\n[store]\ndataset = "d"\n[tls]\ncert_file = "no.crt"\nkey_file = "no.key"\n', "in PEM form"),
        ('[dataset.d]\n[store]\ndataset = "d"\n[node]\ndata_folder = "tailrace.toml"\n', "is not a folder"),
    ],
)
def test_a_problem_is_named_with_its_remedy(tailrace: Tailrace, tmp_path: Path, text: str, says: str) -> None:
    said = tailrace("check", "--config", written(tmp_path, text))
    assert said.code == 1
    assert says in next(line for line in said.lines if line.startswith("problem"))
    assert said.err.endswith("1 problem\n")


def test_a_mistake_in_the_text_is_shown_before_anything_is_opened(tailrace: Tailrace, tmp_path: Path) -> None:
    said = tailrace("check", "--config", written(tmp_path, '[dataset.shop]\nsuorce = "x"\n'))
    assert said.code == 2
    assert said.out == ""
    assert "error: dataset.shop.suorce: unknown key; did you mean source?" in said.err


def test_all_mistakes_in_the_text_are_shown_one_below_the_other(tailrace: Tailrace, tmp_path: Path) -> None:
    text = '[dataset.shop]\nsuorce = "x"\n[app.cache]\nfilter = "a = "\n[publisher]\nlease = 5\n'
    said = tailrace("check", "--config", written(tmp_path, text))
    assert said.code == 2
    assert [line.split(":")[0] for line in said.err.splitlines() if not line.startswith("        ")] == [
        "error", "       app.cache.filter", "       publisher.lease",
    ]  # fmt: skip


def test_a_recorded_number_of_shards_is_fixed(tailrace: Tailrace, tmp_path: Path) -> None:
    folder = rocksdb(tmp_path / "db", wal_keep_s=3600)
    file = written(tmp_path, f'[dataset.shop]\nshards = 32\nsource = "rocksdb://{folder}"\n')
    with EmbeddedCoordinator(tmp_path / "tailrace-data" / COORDINATION_FOLDER) as coordinator:
        fix_shards(coordinator, "shop", 64)
    said = tailrace("check", "--config", file)
    assert said.code == 1
    assert "problem\tdataset shop\tdataset.shop.shards: 32, but" in said.out
    assert "write shards = 64" in said.out
    file.write_text(file.read_text().replace("32", "64"))
    assert tailrace("check", "--config", file).code == 0


def test_the_shards_of_an_own_store_are_fixed(tailrace: Tailrace, tmp_path: Path) -> None:
    file = written(tmp_path, '[dataset.shop]\nshards = 32\n[store]\ndataset = "shop"\n')
    Store.open(tmp_path / "tailrace-data" / STORE_FOLDER / "shop", era=0, options=StoreOptions(shards=64)).close()
    said = tailrace("check", "--config", file)
    assert said.code == 1
    assert "problem\tdataset shop\tdataset.shop.shards: 32, but the store in" in said.out
    file.write_text(file.read_text().replace("32", "64"))
    assert tailrace("check", "--config", file).code == 0


def test_a_publisher_without_a_token_for_its_store_is_a_problem(tailrace: Tailrace, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[dataset.shop]\ncredential_file = "token"\n[store]\ndataset = "shop"\n[node]\ncredentials_file = "who.json"\n',
    )
    assert tailrace("credential", "issue", "cache", "--allow", "subscribe", "--file", tmp_path / "who.json").code == 0
    without = tailrace("check", "--config", file)
    assert without.code == 1
    (tmp_path / "token").write_text(tailrace("credential", "issue", "x", "--allow", "write", "--config", file).out)
    wrong = tailrace("check", "--config", file)
    assert wrong.code == 1
    assert "'x' lacks the scope 'read' on dataset 'shop'" in wrong.out
    for said in (without, wrong):
        command = re.search("`tailrace (credential issue .*?)`; put what it prints", said.out)
        assert command is not None, said.out
    (tmp_path / "token").write_text(tailrace(*command[1].split()).out)
    said = tailrace("check", "--config", file)
    assert said.code == 0, said.out


def test_one_process_needs_no_token(tailrace: Tailrace, tmp_path: Path) -> None:
    text = '[dataset.d]\n[store]\ndataset = "d"\nlisten = "127.0.0.1:7400"\n[node]\ncredentials_file = "who.json"\n'
    assert tailrace("credential", "issue", "cache", "--allow", "subscribe", "--file", tmp_path / "who.json").code == 0
    assert tailrace("check", "--config", written(tmp_path, text)).code == 0


def test_a_marker_that_the_log_no_longer_follows_is_a_warning() -> None:
    bounds = Bounds(Position(0, 100), Position(0, 500))
    late, fine = retention("shop", bounds, {"late": Position(0, 40), "fine": Position(0, 400)}, "store.wal_keep")
    assert late.result == "warning"
    assert "what follows its marker 0:40:0 up to 100 is no longer in the log" in late.found
    assert late.remedy == "it will be told of the loss; keep the log longer (store.wal_keep) for the future"
    assert fine.found == "acknowledged up to 0:400:0, 100 sequence numbers behind"


def test_the_log_of_a_foreign_rocksdb_is_kept_by_the_process_that_writes_it(tailrace: Tailrace, tmp_path: Path) -> None:
    folder = rocksdb(tmp_path / "db", wal_keep_s=3600)
    for archived in (folder / "archive").glob("*.log"):
        archived.unlink()
    with EmbeddedCoordinator(tmp_path / "tailrace-data" / COORDINATION_FOLDER) as coordinator:
        CoordinatorRecords(coordinator).create(ApplicationRecord("shop", "late", None, "reliable", Position(0, 0)))
    said = tailrace("check", "--config", written(tmp_path, f'[dataset.shop]\nsource = "rocksdb://{folder}"\n'))
    told = next(line for line in said.lines if line.startswith("warning\tapplication late"))
    assert "keep the log longer (WAL_ttl_seconds, which the process that writes it sets)" in told


def test_the_schema_is_printed_for_editors(tailrace: Tailrace) -> None:
    schema = tailrace("check", "--schema").json()
    assert schema["title"] == "tailrace.toml"
    assert schema["properties"]["dataset"]["additionalProperties"]["properties"]["shards"]["default"] == 16
