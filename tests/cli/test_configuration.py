"""The configuration says what it accepts, what a key means, and where a mistake is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tailrace.cli.configuration import (
    Configuration,
    configuration_schema,
    find_configuration,
    load_configuration,
    one_machine,
)
from tailrace.cli.roles.store import store_options
from tailrace.cli.running import RunOptions, overridden, roles_of, with_ports
from tailrace.errors import ConfigInvalid, NotFound, VersionTooNew
from tailrace.runtime.units import Duration
from tailrace.store.options import StoreOptions

SHOP = 'version = 1\n[dataset.shop]\nsource = "store://127.0.0.1:7401/shop"\nshards = 4\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "tailrace.toml"
    file.write_text(text)
    return file


def test_without_a_file_one_process_holds_store_and_publisher_on_one_port() -> None:
    found = one_machine()
    assert list(found.dataset) == ["demo"]
    assert found.has_own_store("demo")
    assert found.store is not None
    assert found.store.listen == found.node.listen == "127.0.0.1:7400"
    assert roles_of(found, None) == ["node"]


def test_the_defaults_of_the_store_are_the_stores_own() -> None:
    assert store_options(one_machine()) == StoreOptions(shards=16)


def test_a_file_names_the_roles_that_have_something_to_do(tmp_path: Path) -> None:
    file = written(tmp_path, SHOP)
    assert roles_of(load_configuration(file), file) == ["publisher"]
    file = written(tmp_path, 'version = 1\n[store]\ndataset = "shop"\n[dataset.shop]\n')
    assert roles_of(load_configuration(file), file) == ["store", "publisher"]
    file = written(tmp_path, "version = 1\n")
    with pytest.raises(ConfigInvalid, match="there is nothing to run"):
        roles_of(load_configuration(file), file)


def test_paths_are_taken_from_the_files_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    text = SHOP + '[node]\ndata_folder = "data"\ncredentials_file = "who.json"\n[tls]\ncert_file = "/abs/crt"\n'
    found = load_configuration(written(tmp_path, text))
    assert found.node.data_folder == tmp_path / "data"
    assert found.node.credentials_file == tmp_path / "who.json"
    assert found.tls is not None
    assert found.tls.cert_file == Path("/abs/crt")


def test_the_file_in_this_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_configuration(None)[1] is None
    written(tmp_path, SHOP)
    assert find_configuration(None)[1] == Path("tailrace.toml")
    with pytest.raises(NotFound, match=r"other\.toml"):
        find_configuration(Path("other.toml"))


@pytest.mark.parametrize(
    ("text", "path", "says"),
    [
        ('version = 1\n[dataset.shop]\nsuorce = "x"\n', "dataset.shop.suorce", "did you mean source"),
        (SHOP + "[publisher]\nlease = 5\n", "publisher.lease", "did you mean lease_s"),
        (SHOP + "[publisher]\nlease_s = 0\n", "publisher.lease_s", "not more than 0"),
        (SHOP + "[publisher]\nlease_s = 2\n", "publisher.lease_s", "three heartbeats"),
        ('version = 1\n[dataset.shop]\nsource = "kafka://x"\n', "dataset.shop.source", "cannot be read"),
        ('version = 1\n[dataset.shop]\nsource = "rocksdb://x"\n', "dataset.shop.source", "absolute folder"),
        ('version = 1\n[dataset.shop]\nsource = "store://h:99999/x"\n', "dataset.shop.source", "99999"),
        ("version = 1\n[dataset.shop]\n", "dataset.shop.source", "is missing"),
        ('version = 1\n[dataset."a b"]\nsource = "rocksdb:///x"\n', "dataset.a b", "is no name"),
        ("version = 1\n[dataset.shop]\nshards = 0\n", "dataset.shop.shards", ">= 1"),
        (SHOP + '[store]\ndataset = "other"\n', "store.dataset", "is no dataset here"),
        (SHOP + '[app.cache]\nfilter = "a = "\n', "app.cache.filter", "^"),
        (SHOP + '[app.cache]\nstart = "then"\n', "app.cache.start", "line@era:sequence:index"),
        (SHOP + '[app.cache]\nmode = "relyable"\n', "app.cache.mode", "did you mean 'reliable'"),
        (SHOP + '[app.cache]\ndataset = "shp"\n', "app.cache.dataset", "there are: shop"),
        (SHOP + '[store]\ndataset = "shop"\nwal_keep = "1s"\n', "store.wal_keep", "least allowed"),
        ("[dataset.shop]\n", "version", "is missing"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, path: str, says: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_configuration(written(tmp_path, text))
    assert caught.value.path == path
    assert says in str(caught.value)


def test_all_mistakes_in_sections_are_told_at_once(tmp_path: Path) -> None:
    text = """
    version = 1
    [dataset.shop]
    suorce = "rocksdb:///db"
    shards = 0
    [app.cache]
    filter = "a = "
    start = "then"
    [publisher]
    lease = 5
    """
    with pytest.raises(ConfigInvalid) as caught:
        load_configuration(written(tmp_path, text))
    found = [str(caught.value), *caught.value.__notes__]
    assert [one.partition(":")[0] for one in found] == [
        "dataset.shop.suorce", "dataset.shop.shards", "app.cache.filter", "app.cache.start", "publisher.lease",
    ]  # fmt: skip


def test_all_that_does_not_fit_together_is_told_at_once(tmp_path: Path) -> None:
    text = """
    version = 1
    [dataset."a b"]
    source = "rocksdb:///db"
    [dataset.shop]
    [app.cache]
    dataset = "shp"
    [app.other]
    [store]
    dataset = "stock"
    [publisher]
    slowness_s = 0
    lease_s = 0
    """
    with pytest.raises(ConfigInvalid) as caught:
        load_configuration(written(tmp_path, text))
    found = [str(caught.value), *caught.value.__notes__]
    assert [one.partition(":")[0] for one in found] == [
        "dataset.a b", "dataset.shop.source", "store.dataset", "app.cache.dataset", "app.other.dataset",
        "publisher.slowness_s", "publisher.lease_s",
    ]  # fmt: skip


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VersionTooNew, match="format version 2"):
        load_configuration(written(tmp_path, "version = 2\n"))


def test_the_schema_knows_every_key_and_no_other() -> None:
    def agree(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
        assert set(schema["properties"]) == {field.encode_name for field in msgspec.structs.fields(kind)}
        assert schema["additionalProperties"] is False

    schema = configuration_schema()
    agree(schema, Configuration)
    json.dumps(schema)
    for name, kind in (("node", type(one_machine().node)), ("store", type(one_machine().store))):
        agree(schema["properties"][name], kind)
    assert schema["properties"]["store"]["properties"]["wal_keep"]["default"] == "1d"


def test_the_command_line_says_otherwise_than_the_configuration(tmp_path: Path) -> None:
    options = RunOptions("node", None, tmp_path, "127.0.0.1:0", "127.0.0.1:7999")
    found = with_ports(overridden(one_machine(), options, ["node"]))
    assert found.node.data_folder == tmp_path
    assert found.node.health_listen == "127.0.0.1:7999"
    assert found.store is not None
    assert found.store.listen == found.node.listen != "127.0.0.1:0"
    assert found.store.wal_keep == Duration(86_400)
