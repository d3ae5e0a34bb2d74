"""Ends a connection that has fallen silent, which Flight has no call for on a write stream.

A thread that reads the answers of a put waits until the connection ends. Shutting the sockets to that peer down lets
gRPC see the end. Other connections of this process to the same silent server are cut as well; they connect anew.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Final

_OWN_FILES: Final = Path("/proc/self/fd")


def sever(host: str, port: int) -> int:
    """Shuts down every TCP connection of this process to `host`:`port`; returns how many. Linux only, else 0."""
    if not _OWN_FILES.is_dir():
        return 0
    peers = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    return sum(_shut(int(name), peers, port) for name in os.listdir(_OWN_FILES))


def _shut(descriptor: int, peers: set[str | int], port: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return False
            peer = connection.getpeername()
            if str(peer[0]).removeprefix("::ffff:") not in peers or peer[1] != port:
                return False
            connection.shutdown(socket.SHUT_RDWR)
            return True
    except OSError:  # not connected, or closed since it was listed
        return False
