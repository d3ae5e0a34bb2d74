"""The configuration: every key that there is, with its default, and what is checked before anything starts.

`load_configuration` reads a TOML file into these Structs; relative paths in it are taken from the file's own folder.
Without a file the one-machine default holds: an embedded store and its publisher in one process on one port, with
everything in one data folder. What can be wrong with the text alone is found here (a filter, a position, a URL, a name
that is referred to and not there); what needs the world is what `tailrace check` looks at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from tailrace.errors import ConfigInvalid, TailraceError
from tailrace.publisher.settings import PublisherSettings
from tailrace.runtime.config import Mistakes, Within, load
from tailrace.runtime.config_schema import json_schema
from tailrace.runtime.units import Duration, Size

CONFIGURATION_VERSION: Final = 1
FILE_NAME: Final = "tailrace.toml"
DEFAULT_DATASET: Final = "demo"
DEFAULT_SHARDS: Final = 16
DEFAULT_ADDRESS: Final = "127.0.0.1:7400"
STARTS: Final = ("earliest", "latest")
READABLE_SCHEMES: Final = ("store", "store+tls", "rocksdb")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")

S = TypeVar("S", bound=msgspec.Struct)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all tables."""


class DatasetSettings(Settings, frozen=True):
    """Related data, split into shards, and the log that tells of its changes."""

    shards: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = DEFAULT_SHARDS  # fixed for the dataset's life
    source: str | tuple[str, ...] = ()  # URL of its log, or of several replicas; left out: this node's own [store]
    credential_file: Path | None = None  # the token for a store:// that asks for one
    wal_dir: Path | None = None  # where the log of a rocksdb:// lies, if not beside its data
    on_gap: Literal["stop", "notice"] = "stop"  # writes that bypassed the log stop the flow, or become a loss notice

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,) if isinstance(self.source, str) else self.source

    def __post_init__(self) -> None:
        for url in self.sources:
            check_source_url("source", url)
        if len(self.sources) > 1:
            raise ConfigInvalid(path="source", reason="several replicas need a coordinator on several machines")


class ApplicationSettings(Settings, frozen=True):
    """A consumer of a dataset, recorded before its first subscriber comes."""

    dataset: str = ""  # may be left out if there is only one
    filter: str | None = None
    mode: Literal["reliable", "realtime"] = "reliable"
    start: str = "latest"  # 'earliest', 'latest' or line@era:sequence:index; counts when the record is made

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        with mistakes, _named("filter"):
            require_filter(self.filter)
        with mistakes, _named("start"):
            require_start(self.start)
        mistakes.tell()


class StoreSettings(Settings, frozen=True):
    """The embedded datastore that this node runs."""

    dataset: str = DEFAULT_DATASET
    listen: str = "127.0.0.1:7401"
    health_listen: str = "127.0.0.1:7481"
    durability: Literal["fsync", "grouped", "none"] = "grouped"
    wal_keep: Annotated[Duration, Within("1m", "365d")] = Duration(24 * 3600)
    wal_keep_bytes: Annotated[Size, Within("64MiB", "100TiB")] = Size(10_000 << 20)
    write_buffer_bytes: Annotated[Size, Within("64KiB", "1GiB")] = Size(32 << 20)
    max_update_bytes: Annotated[Size, Within("1KiB", "64MiB")] = Size(8 << 20)
    max_tables: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000


class NodeSettings(Settings, frozen=True):
    """Where this node listens and keeps its data."""

    listen: str = DEFAULT_ADDRESS
    health_listen: str = "127.0.0.1:7480"
    advertise: str = ""  # what others reach `listen` as, if it is not that
    data_folder: Path = Path("tailrace-data")
    credentials_file: Path | None = None  # who may do what; made by `tailrace credential issue`


class TlsSettings(Settings, frozen=True):
    """Certificates in PEM files."""

    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    mutual: bool = False
    server_name: str | None = None


class Configuration(Settings, frozen=True):
    """Everything that one node is told."""

    version: int = CONFIGURATION_VERSION
    dataset: dict[str, DatasetSettings] = {}
    app: dict[str, ApplicationSettings] = {}
    store: StoreSettings | None = None
    publisher: PublisherSettings = PublisherSettings()
    node: NodeSettings = NodeSettings()
    tls: TlsSettings | None = None

    def __post_init__(self) -> None:
        mistakes = Mistakes()
        for name, dataset in self.dataset.items():
            with mistakes:
                self._check_dataset(name, dataset)
        if self.store is not None and self.store.dataset not in self.dataset:
            reason = f"{self.store.dataset!r} is no dataset here; write [dataset.{self.store.dataset}] too"
            mistakes.add(ConfigInvalid(path="store.dataset", reason=reason))
        for name, app in self.app.items():
            with mistakes:
                self._check_application(name, app)
        with mistakes:
            _require_numbers(self.publisher)
        mistakes.tell()

    def dataset_of(self, app: ApplicationSettings) -> str:
        return app.dataset or next(iter(self.dataset))

    def has_own_store(self, dataset: str) -> bool:
        return self.store is not None and self.store.dataset == dataset and not self.dataset[dataset].sources

    def _check_dataset(self, name: str, dataset: DatasetSettings) -> None:
        path = f"dataset.{name}"
        _require_name(path, name)
        if not dataset.sources and (self.store is None or self.store.dataset != name):
            example = f'source = "store://127.0.0.1:7401/{name}"'
            raise ConfigInvalid(
                path=f"{path}.source", reason=f"is missing; write {example}, or [store] for one of its own"
            )

    def _check_application(self, name: str, app: ApplicationSettings) -> None:
        path = f"app.{name}"
        _require_name(path, name)
        if not app.dataset and len(self.dataset) != 1:
            raise ConfigInvalid(
                path=f"{path}.dataset", reason=f"is missing; it is one of {', '.join(self.dataset) or 'none'}"
            )
        if app.dataset and app.dataset not in self.dataset:
            known = ", ".join(self.dataset) or "none yet"
            raise ConfigInvalid(
                path=f"{path}.dataset", reason=f"{app.dataset!r} is no dataset here; there are: {known}"
            )


class _named:
    """Puts the key's path before an error about its value."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TailraceError):
            raise ConfigInvalid(path=self._path, reason=str(error)) from error


def require_filter(text: str | None) -> None:
    """`FilterInvalid` unless it parses. The parser is only loaded where there is something to parse."""
    if text is not None:
        from tailrace.updates.filters import Filter

        Filter.parse(text)


def require_start(text: str) -> None:
    if text not in STARTS:
        from tailrace.updates.position import LinePosition

        LinePosition.parse(text)


def check_source_url(path: str, url: str) -> None:
    """Whether a source's URL can be read; nothing is opened."""
    from tailrace.wire.addresses import parse_url

    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in READABLE_SCHEMES:
        known = "store://host:port/dataset and rocksdb:///folder"
        raise ConfigInvalid(path=path, reason=f"{url!r} cannot be read by this version of Tailrace; it reads {known}")
    with _named(path):
        if scheme == "rocksdb":
            if not rest.startswith("/") or rest == "/":
                raise ConfigInvalid(path=path, reason=f"{url!r} needs an absolute folder, as in rocksdb:///var/lib/db")
        else:
            parse_url(url, scheme="store")


def _require_name(path: str, name: str) -> None:
    if not _NAME.match(name):
        raise ConfigInvalid(path=path, reason=f"{name!r} is no name (letters, digits, '_', '.' and '-'; at most 63)")


def _require_numbers(settings: PublisherSettings) -> None:
    mistakes = Mistakes()
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if not isinstance(value, bool) and isinstance(value, int | float) and not value > 0:
            mistakes.add(ConfigInvalid(path=f"publisher.{field.name}", reason=f"{value} is not more than 0"))
    mistakes.tell()
    if settings.lease_s < 3 * settings.heartbeat_s:
        reason = f"{settings.lease_s:g} s is less than three heartbeats of {settings.heartbeat_s:g} s"
        raise ConfigInvalid(path="publisher.lease_s", reason=reason)


# ---- where a configuration comes from ------------------------------------------------------------------------------


def one_machine() -> Configuration:
    """What holds without a file: one process, one port, one folder."""
    return Configuration(
        dataset={DEFAULT_DATASET: DatasetSettings()},
        store=StoreSettings(listen=DEFAULT_ADDRESS, health_listen=NodeSettings().health_listen),
    )


def load_configuration(file: Path) -> Configuration:
    found = load(file, Configuration, known_version=CONFIGURATION_VERSION)
    return _resolved(found, file.resolve().parent)


def find_configuration(file: Path | None) -> tuple[Configuration, Path | None]:
    """The file that was named, else the one in this folder, else the one-machine default."""
    if file is None and Path(FILE_NAME).exists():
        file = Path(FILE_NAME)
    return (one_machine(), None) if file is None else (load_configuration(file), file)


def _resolved(found: Configuration, base: Path) -> Configuration:
    tls = None if found.tls is None else with_changes(found.tls, _paths(found.tls, base))
    node = with_changes(found.node, _paths(found.node, base))
    datasets = {name: with_changes(dataset, _paths(dataset, base)) for name, dataset in found.dataset.items()}
    return with_changes(found, {"node": node, "tls": tls, "dataset": datasets})


def _paths(settings: msgspec.Struct, base: Path) -> dict[str, Any]:
    values = {field.name: getattr(settings, field.name) for field in msgspec.structs.fields(settings)}
    return {name: base / value for name, value in values.items() if isinstance(value, Path)}


def with_changes(settings: S, changes: Mapping[str, Any]) -> S:
    """A copy with other values; it is checked again where it checks itself."""
    return msgspec.structs.replace(settings, **changes)


def configuration_schema() -> dict[str, Any]:
    """What an editor needs to complete and check tailrace.toml."""
    return json_schema(Configuration, title="tailrace.toml")
