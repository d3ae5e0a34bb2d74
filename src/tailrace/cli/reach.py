"""How a command finds the servers that it asks: options first, then the configuration, then the default.

A configuration file on this machine says where its own node listens, with which certificates, and which file holds the
credentials; only the token has to come from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.cli.configuration import Configuration, find_configuration, with_changes
from tailrace.cli.environment import read_environment
from tailrace.errors import ConfigInvalid, NotFound

if TYPE_CHECKING:
    from tailrace.store.client import StoreClient
    from tailrace.wire.client import Connection
    from tailrace.wire.messages import DatasetInfo, HelloReply
    from tailrace.wire.tls import TLS


@dataclass(frozen=True, slots=True)
class ReachOptions:
    """What the options of a command said; None is "not given"."""

    config: Path | None = None
    address: str | None = None
    store: str | None = None
    credential_file: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Reach:
    """Where to go and what to show there."""

    address: str
    store: str
    credential: str | None
    tls: TLS | None
    configuration: Configuration

    def publisher(self) -> Connection:
        from tailrace.wire.client import Connection

        return Connection(self.address, self.credential, self.tls)

    def store_client(self, dataset: str) -> StoreClient:
        from tailrace.store.client import StoreClient

        scheme = "store+tls" if self.tls else "store"
        return StoreClient(f"{scheme}://{self.store}/{dataset}", credential=self.credential, tls=self.tls)


def reach(options: ReachOptions) -> Reach:
    configuration, file = find_configuration(options.config)
    shared = options.address if file is None else None  # without a file, store and publisher share an address
    return Reach(
        address=options.address or configuration.node.listen,
        store=options.store or shared or _store_address(configuration) or options.address or configuration.node.listen,
        credential=_credential(options.credential_file),
        tls=_tls(configuration, options),
        configuration=configuration,
    )


def _store_address(configuration: Configuration) -> str:
    """The store that this node runs, else the first one that a dataset is read from."""
    if configuration.store is not None:
        return configuration.store.listen
    from tailrace.wire.addresses import parse_url

    urls = [url for dataset in configuration.dataset.values() for url in dataset.sources if url.startswith("store")]
    return parse_url(urls[0], scheme="store").address if urls else ""


def _credential(file: Path | None) -> str | None:
    if file is not None:
        from tailrace.wire.credentials import read_token

        return read_token(file)
    secret = read_environment().credential
    return secret.reveal() if secret else None


def _tls(configuration: Configuration, options: ReachOptions) -> TLS | None:
    settings = configuration.tls
    if options.ca_file is None and settings is None:
        return None
    from tailrace.wire.tls import TLS

    if settings is None:
        return TLS(ca_file=options.ca_file)
    if options.ca_file is not None:
        settings = with_changes(settings, {"ca_file": options.ca_file})
    own = settings if settings.mutual else with_changes(settings, {"cert_file": None, "key_file": None})
    return TLS(own.cert_file, own.key_file, own.ca_file, own.mutual, own.server_name)


def greet(connection: Connection) -> HelloReply:
    from tailrace.errors import ProtocolMismatch
    from tailrace.wire.messages import Hello, HelloReply, decode_reply

    reply = connection.call(Hello(), decode_reply)
    if not isinstance(reply, HelloReply):
        raise ProtocolMismatch(reason=f"{connection.address} answered Hello with a {type(reply).__name__}")
    return reply


def the_dataset(connection: Connection, name: str | None) -> DatasetInfo:
    """The dataset that was named, or the only one."""
    datasets = greet(connection).datasets
    if name is None and len(datasets) == 1:
        return datasets[0]
    known = ", ".join(dataset.name for dataset in datasets) or "none"
    if name is None:
        raise ConfigInvalid(path="--dataset", reason=f"is missing; {connection.address} serves {known}")
    for dataset in datasets:
        if dataset.name == name:
            return dataset
    raise NotFound(what="dataset", name=name, remedy=f"{connection.address} serves: {known}")
