"""Port 0 in an address means any free port; it is chosen before anything starts, because peers are told the address.

A port that another process holds is found out by asking the system: what gRPC says of it is long and names no cause.
"""

from __future__ import annotations

import socket

from tailrace.errors import Unavailable
from tailrace.wire.addresses import parse_address


def settled(address: str) -> str:
    """The address itself, or with a free port in place of port 0."""
    endpoint = parse_address(address)
    if endpoint.port:
        return address
    with socket.socket(_family(endpoint.host)) as probe:
        probe.bind((endpoint.host, 0))
        port = probe.getsockname()[1]
    return f"[{endpoint.host}]:{port}" if ":" in endpoint.host else f"{endpoint.host}:{port}"


def require_free(address: str) -> None:
    """`Unavailable` with the system's reason if nothing can listen there."""
    endpoint = parse_address(address)
    with socket.socket(_family(endpoint.host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((endpoint.host, endpoint.port))
        except OSError as error:
            failure = Unavailable(reason=f"port {endpoint.address} cannot be opened: {error.strerror}")
            failure.add_note("is another node running here? --listen (or the key listen) names another port")
            raise failure from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
