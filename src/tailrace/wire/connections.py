"""Closing connections from inside the process, which gRPC itself offers no way to do.

A call that is blocked writing to a client that does not read ends only with its connection, and so does one that waits
for a server that says nothing. On Linux the process sees its own sockets in /proc/self/fd; shutting one down makes gRPC
notice as if the peer had gone.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from typing import Final

_OWN_FILES: Final = "/proc/self/fd"


def drop_connections(port: int) -> int:
    """Closes every TCP connection that was accepted on `port`; returns how many."""
    return _drop_where(lambda connection: connection.getsockname()[1] == port)


def drop_connections_to(host: str, port: int) -> int:
    """Closes every TCP connection of this process to `host`:`port`; returns how many."""
    addresses = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}

    def goes_there(connection: socket.socket) -> bool:
        peer = connection.getpeername()
        return str(peer[0]).removeprefix("::ffff:") in addresses and peer[1] == port

    return _drop_where(goes_there)


def _drop_where(condition: Callable[[socket.socket], bool]) -> int:
    if not os.path.isdir(_OWN_FILES):
        return 0
    return sum(_drop(int(name), condition) for name in os.listdir(_OWN_FILES))


def _drop(descriptor: int, condition: Callable[[socket.socket], bool]) -> bool:
    """False for whatever is no such connection, or was closed since it was listed."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            connection.getpeername()  # raises on the listening socket, which stays
            if not condition(connection):
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:
        return False
