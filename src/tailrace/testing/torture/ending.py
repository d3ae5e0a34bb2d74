"""SIGTERM as an event.

The signal may reach any thread of the process, those of numpy and gRPC included, so blocking it in our own does not help;
and a Python handler runs in the midst of whatever the main thread does, where setting an event that this very thread is
about to wait for can hang. So the handler does nothing, and a thread waits for the byte that Python writes on arrival.
"""

from __future__ import annotations

import signal
import socket
import threading
from typing import Final

_kept: Final[list[socket.socket]] = []  # open for the life of the process: Python writes to one at every signal


def end_on_sigterm() -> threading.Event:
    """An event that SIGTERM sets. Call it from the main thread, once."""
    ended = threading.Event()
    told, telling = socket.socketpair()
    telling.setblocking(False)
    signal.set_wakeup_fd(telling.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)

    def wait() -> None:
        told.recv(1)
        ended.set()

    threading.Thread(target=wait, name="sigterm", daemon=True).start()
    _kept.extend((told, telling))
    return ended
