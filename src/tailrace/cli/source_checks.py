"""The part of `tailrace check` about logs: can each be read, will it be kept, does it hold what applications need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Final

from tailrace.cli.configuration import Configuration, DatasetSettings
from tailrace.cli.failures import remedy_for
from tailrace.cli.findings import Finding, ok, problem, warning
from tailrace.cli.roles.assembly import COORDINATION_FOLDER, PUBLISHER_FOLDER, STORE_FOLDER
from tailrace.cli.roles.security import client_tls, known_credentials, source_token
from tailrace.cli.roles.store import claim
from tailrace.coordination.datasets import read_shards, refuse_other_shards
from tailrace.coordination.embedded import DATABASE_NAME, EmbeddedCoordinator
from tailrace.errors import ConfigInvalid, CredentialRefused, TailraceError
from tailrace.publisher.applications import ApplicationRecord, refuse_difference
from tailrace.publisher.ledger import FILE_NAME, open_ledger
from tailrace.publisher.markers import MarkerStore
from tailrace.publisher.records import CoordinatorRecords
from tailrace.sources.interface import Bounds
from tailrace.sources.rocksdb.source import RocksDBSource
from tailrace.updates.filters import Filter
from tailrace.updates.position import Position
from tailrace.wire.addresses import parse_url
from tailrace.wire.client import Connection
from tailrace.wire.credentials import bearer
from tailrace.wire.store_messages import DescribeStore, StoreDescription, decode_store_reply

_OPTION: Final = re.compile(r"^\s*(WAL_ttl_seconds|WAL_size_limit_MB|recycle_log_file_num)\s*=\s*(\d+)", re.MULTILINE)


def check_sources(configuration: Configuration) -> Iterator[Finding]:
    records, shards = _recorded(configuration)
    markers = acknowledged(configuration, records)
    for name, settings in configuration.dataset.items():
        bounds = None
        try:
            refuse_other_shards(name, shards.get(name), settings.shards)
            for finding in _source(configuration, name, settings):
                if isinstance(finding, Bounds):
                    bounds = finding
                else:
                    yield finding
        except TailraceError as error:
            yield problem(f"dataset {name}", str(error), remedy_for(error))
        of_this = [record for record in records if record.dataset == name]
        yield from _records(configuration, name, of_this)
        if bounds is not None:
            of_each = {record.application: markers[name, record.application] for record in of_this}
            yield from retention(name, bounds, of_each, _keeper(configuration, name, settings))


def _source(configuration: Configuration, name: str, settings: DatasetSettings) -> Iterator[Finding | Bounds]:
    what = f"dataset {name}"
    if configuration.has_own_store(name):
        yield from _token(configuration, name, settings)
        folder = configuration.node.data_folder.resolve() / STORE_FOLDER / name
        if not (folder / "CURRENT").exists():
            yield ok(what, f"its store will be made in {folder}")
            return
        claim(folder, name, settings.shards)
    elif settings.sources[0].startswith("rocksdb://"):
        folder = Path(settings.sources[0].removeprefix("rocksdb://"))
        if not (folder / "CURRENT").exists():
            yield problem(what, f"{folder} holds no RocksDB that this user can read", "name the folder of the database")
            return
        yield from _kept(what, folder)
    else:
        described = _described(configuration, settings, settings.sources[0])
        refuse_other_shards(name, described.shards, settings.shards, f"the store at {settings.sources[0]}")
        folder = Path(described.path)
    source = RocksDBSource(folder, line=name, era=0, shards=settings.shards, wal_dir=settings.wal_dir)
    try:
        bounds = source.bounds()
    finally:
        source.close()
    yield ok(
        what, f"its log in {folder} holds everything after {bounds.after.sequence}, up to {bounds.through.sequence}"
    )
    yield bounds


def _token(configuration: Configuration, name: str, settings: DatasetSettings) -> Iterator[Finding]:
    """A publisher in a process of its own shows the store a token, as every client does.

    Where both have one address they can only run in one process, which needs none.
    """
    file, store = configuration.node.credentials_file, configuration.store
    if file is None or store is None or store.listen == configuration.node.listen:
        return
    try:
        token = source_token(settings)
        if token is None:
            raise CredentialRefused(reason="the store asks for one, and its publisher has no token")
        credentials = known_credentials(configuration)
        assert credentials is not None
        credentials.caller(bearer(token), "").require("read", name)
    except (CredentialRefused, ConfigInvalid) as error:
        issue = f"tailrace credential issue publisher --allow read --dataset {name} --file {quote(str(file))}"
        remedy = f"`{issue}`; put what it prints into a file that dataset.{name}.credential_file names"
        yield problem(f"dataset {name}", f"its publisher will not reach its store: {error}", remedy)


def _described(configuration: Configuration, settings: DatasetSettings, url: str) -> StoreDescription:
    endpoint = parse_url(url, scheme="store")
    tls = client_tls(configuration) if endpoint.tls else None
    with Connection(endpoint, source_token(settings), tls) as connection:
        reply = connection.call(DescribeStore(endpoint.dataset), decode_store_reply)
    assert isinstance(reply, StoreDescription), "the decoder's union and the action's name settle this"
    return reply


def _kept(what: str, folder: Path) -> Iterator[Finding]:
    """Whether the process that writes a foreign RocksDB keeps its log once it is flushed."""
    files = sorted(folder.glob("OPTIONS-*[0-9]"), key=lambda file: int(file.name.partition("-")[2]))
    if not files:
        return
    said = {name: int(value) for name, value in _OPTION.findall(files[-1].read_text(errors="replace"))}
    if not said.get("WAL_ttl_seconds") and not said.get("WAL_size_limit_MB"):
        yield warning(
            what,
            "its RocksDB deletes log files as soon as they are flushed; a slow application would lose updates",
            "open the database with WAL_ttl_seconds (say 86400) or WAL_size_limit_MB set",
        )


# ---- what applications need -----------------------------------------------------------------------------------------


def _keeper(configuration: Configuration, name: str, settings: DatasetSettings) -> str:
    """Who decides how long the dataset's log is kept."""
    if configuration.has_own_store(name):
        return "store.wal_keep"
    url = settings.sources[0]
    by_writer = "WAL_ttl_seconds, which the process that writes it sets"
    return by_writer if url.startswith("rocksdb://") else f"store.wal_keep on the node of {url}"


def retention(dataset: str, bounds: Bounds, markers: dict[str, Position], keeper: str) -> Iterator[Finding]:
    """Whether the log still holds what follows each application's marker. Sequences compare within the current era."""
    for application, marker in markers.items():
        what = f"application {application}"
        if marker.sequence < bounds.after.sequence:
            lost = (
                f"what follows its marker {marker} up to {bounds.after.sequence} is no longer in the log of {dataset}"
            )
            yield warning(what, lost, f"it will be told of the loss; keep the log longer ({keeper}) for the future")
        else:
            yield ok(
                what,
                f"acknowledged up to {marker}, {bounds.through.sequence - marker.sequence} sequence numbers behind",
            )


def _recorded(configuration: Configuration) -> tuple[list[ApplicationRecord], dict[str, int | None]]:
    """The applications and the shards of the configured datasets."""
    folder = configuration.node.data_folder.resolve() / COORDINATION_FOLDER
    if not (folder / DATABASE_NAME).exists():
        return [], {}
    with EmbeddedCoordinator(folder) as coordinator:
        records = CoordinatorRecords(coordinator)
        shards = {name: read_shards(coordinator, name) for name in configuration.dataset}
        applications = [record for name in configuration.dataset for record in records.of(name)]
    return applications, shards


def acknowledged(configuration: Configuration, records: list[ApplicationRecord]) -> dict[tuple[str, str], Position]:
    """The least marker of each recorded application; its start where it has none."""
    folder = configuration.node.data_folder.resolve() / PUBLISHER_FOLDER
    if not (folder / FILE_NAME).exists():
        return {(record.dataset, record.application): record.start for record in records}
    found = {}
    with open_ledger(folder) as ledger:
        store = MarkerStore(ledger)
        for record in records:
            markers = store.load(record.dataset, record.application).values()
            least = min((marker.position for marker in markers), default=record.start)
            found[record.dataset, record.application] = least
    return found


def _records(configuration: Configuration, dataset: str, records: list[ApplicationRecord]) -> Iterator[Finding]:
    """Whether what is recorded of the configured applications says what the configuration says."""
    for record in records:
        app = configuration.app.get(record.application)
        if app is None or configuration.dataset_of(app) != dataset:
            continue
        try:
            refuse_difference(record, str(Filter.parse(app.filter)) if app.filter else None, app.mode)
        except TailraceError as error:
            yield problem(f"app.{record.application}", str(error), "write it as it is recorded, or under another name")
