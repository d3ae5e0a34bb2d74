"""Certificates and credentials of a role: what its server shows and asks for, what it shows to a store elsewhere."""

from __future__ import annotations

from tailrace.cli.configuration import Configuration
from tailrace.cli.environment import read_environment
from tailrace.wire.credentials import Credentials
from tailrace.wire.tls import TLS


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


def node_token(configuration: Configuration) -> str | None:
    """The token in TAILRACE_CREDENTIAL, for a store that has no credential_file of its own."""
    secret = read_environment().credential
    return secret.reveal() if secret else None
