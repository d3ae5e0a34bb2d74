"""The process of one role, or of many: `python -m tailrace.bench.role MODULE:CLASS PIPE...`.

Builds the role from the arguments that its pipe delivers first, then answers calls until the pipe closes.

With several pipes it imports the role once and forks itself, once per pipe: twenty applications would otherwise spend
most of a bench importing Arrow and numba. gRPC does not survive a fork, so nothing of it may have been used before, and
that is made sure of: a process that has a second thread by then refuses to fork. A role's `prepare`, if it has one,
runs before that.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def main(role: str, descriptors: Sequence[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the bench, which closes the pipes
    module, _, name = role.partition(":")
    kind = getattr(import_module(module), name)
    if len(descriptors) == 1:
        play(kind, descriptors[0])
        return
    prepare = getattr(kind, "prepare", None)
    if prepare is not None:
        prepare()
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise RuntimeError(f"{role} has {threads} threads before it was forked")
    parent = os.getpid()
    for descriptor in descriptors:
        if os.fork() == 0:
            _die_with(parent)
            for other in descriptors:
                if other != descriptor:
                    os.close(other)
            play(kind, descriptor)
            return
    for descriptor in descriptors:
        os.close(descriptor)  # so that the bench notices when a role ends
    for _ in descriptors:
        os.wait()


def _die_with(parent: int) -> None:
    """Asks the kernel for SIGKILL at the parent's death, as `runtime/orphan.py` does for a program."""
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def play(kind: Any, descriptor: int) -> None:
    """Answers one pipe until it closes."""
    pipe: Connection[Any, Any] = Connection(descriptor)
    built = None
    try:
        built = kind(**pipe.recv())
        pipe.send(("done", os.getpid()))
        while True:
            method, arguments = pipe.recv()
            pipe.send(("done", getattr(built, method)(**arguments)))
    except EOFError:
        return  # the bench has what it wanted
    except Exception as error:
        _report(pipe, f"{type(error).__name__}: {error}")
        raise  # the traceback goes to the role's log, whose end the bench shows
    finally:
        if built is not None:
            built.close()


def _report(pipe: Connection[Any, Any], text: str) -> None:
    try:
        pipe.send(("error", text))
    except OSError:
        sys.stderr.write(text)  # the bench is gone; its log keeps it


if __name__ == "__main__":
    main(sys.argv[1], [int(text) for text in sys.argv[2:]])
