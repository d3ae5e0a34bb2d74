"""Port 0 in an address means any free port; it is chosen before anything starts, because peers are told the address."""

from __future__ import annotations

import socket

from tailrace.wire.addresses import parse_address


def settled(address: str) -> str:
    """The address itself, or with a free port in place of port 0."""
    endpoint = parse_address(address)
    if endpoint.port:
        return address
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((endpoint.host, 0))
        port = probe.getsockname()[1]
    return f"[{endpoint.host}]:{port}" if family == socket.AF_INET6 else f"{endpoint.host}:{port}"
