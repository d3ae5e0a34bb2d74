"""Ports for servers that tests start, and that must be there again after a restart.

The kernel gives outgoing connections a port from its ephemeral range, so a server's port taken from there could be
gone when the server comes back. These ports lie below that range; each was free when it was handed out, and none is
handed out twice by one process.
"""

from __future__ import annotations

import random
import socket
from typing import Final

LOWEST: Final = 12_000
HIGHEST: Final = 32_000
ATTEMPTS: Final = 1000

_given: set[int] = set()
_random: Final = random.SystemRandom()  # not seeded: two test processes must not draw the same ports


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on."""
    for _ in range(ATTEMPTS):
        port = _random.randrange(LOWEST, HIGHEST)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise OSError(f"no free port between {LOWEST} and {HIGHEST} after {ATTEMPTS} attempts")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
