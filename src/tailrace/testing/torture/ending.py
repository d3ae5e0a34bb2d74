"""SIGTERM as an event.

A thread waits for the signal, which all others block: a handler would run in the midst of whatever the main thread
does, and setting an event that the main thread is just waiting for can then wait for ever.
"""

from __future__ import annotations

import signal
import threading


def end_on_sigterm() -> threading.Event:
    """An event that SIGTERM sets. Call it before any thread is started: they inherit what is blocked."""
    ended = threading.Event()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        ended.set()

    threading.Thread(target=wait, name="sigterm", daemon=True).start()
    return ended
