"""Certificates and credentials of a role: what its server shows and asks for, what it shows to a store elsewhere.

A server refuses an address that other machines reach unless it has both. `require_safe` comes to the same answer before
anything is opened or made.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tailrace.cli.configuration import Configuration, DatasetSettings
from tailrace.cli.environment import read_environment
from tailrace.errors import ConfigInvalid
from tailrace.wire.addresses import is_loopback, parse_address
from tailrace.wire.credentials import Credentials, read_token
from tailrace.wire.tls import TLS

EXPOSED: Final = "can be reached from other machines without TLS and credentials"
PROTECT: Final = "set [tls] and node.credentials_file, or listen on 127.0.0.1"


def known_credentials(configuration: Configuration) -> Credentials | None:
    """The credentials that this node's servers accept; None where only this machine can reach them and any may."""
    file = configuration.node.credentials_file
    return Credentials(file) if file is not None else None


def server_tls(configuration: Configuration) -> TLS | None:
    tls = configuration.tls
    if tls is None or tls.cert_file is None:
        return None
    return TLS(tls.cert_file, tls.key_file, tls.ca_file, tls.mutual, tls.server_name)


def client_tls(configuration: Configuration) -> TLS | None:
    """How this node meets other servers; its own certificate is shown where servers ask for one."""
    tls = configuration.tls
    if tls is None:
        return None
    if tls.mutual:
        return TLS(tls.cert_file, tls.key_file, tls.ca_file, True, tls.server_name)
    return TLS(ca_file=tls.ca_file, server_name=tls.server_name)


def source_token(settings: DatasetSettings) -> str | None:
    """What the publisher of a dataset shows to its store: its credential_file's token, else TAILRACE_CREDENTIAL."""
    if settings.credential_file is not None:
        return read_token(settings.credential_file)
    secret = read_environment().credential
    return secret.reveal() if secret else None


# ---- where a node listens -------------------------------------------------------------------------------------------


def addresses(configuration: Configuration, roles: Collection[str] = ("node",)) -> dict[str, str]:
    """Where roles listen, by the key that says so."""
    found = {} if set(roles) == {"store"} else {"node.listen": configuration.node.listen}
    store = configuration.store
    if store is not None and set(roles) != {"publisher"} and store.listen not in found.values():
        found["store.listen"] = store.listen
    return found


def is_safe(configuration: Configuration, address: str) -> bool:
    """Whether only this machine reaches an address, or only those with a credential, over TLS."""
    secured = server_tls(configuration) is not None and configuration.node.credentials_file is not None
    return secured or is_loopback(parse_address(address).host)


def require_safe(configuration: Configuration, roles: Collection[str]) -> None:
    """`ConfigInvalid` if the roles' servers could not listen with these addresses, certificates and credentials."""
    for key, address in addresses(configuration, roles).items():
        if not is_safe(configuration, address):
            raise ConfigInvalid(path=key, reason=f"{address} {EXPOSED}; {PROTECT}")
    known_credentials(configuration)
    tls = server_tls(configuration)
    if tls is not None:
        tls.server_options()
