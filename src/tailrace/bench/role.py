"""The process of one role, or of many: `python -m tailrace.bench.role MODULE:CLASS PIPE...`.

Builds the role from the arguments that its pipe delivers first, then answers calls until the pipe closes.

With several pipes it imports the role once and forks itself, once per pipe: twenty applications would otherwise spend
most of a bench importing Arrow and numba. gRPC does not survive a fork, so nothing of it may have been used before, and
that is made sure of: a process that has a second thread by then refuses to fork. A role's `prepare`, if it has one,
runs before that.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NoReturn

from tailrace.runtime.interpreter import tune

SET_DEATH_SIGNAL: Final = 1  # of prctl


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
    gc.freeze()  # what was imported is shared with all forks; collecting garbage would copy it into each
    parent = os.getpid()
    for descriptor in descriptors:
        if os.fork() == 0:
            _play_forked(kind, descriptor, set(descriptors) - {descriptor}, parent)
    for descriptor in descriptors:
        os.close(descriptor)  # so that the bench notices when a role ends
    for _ in descriptors:
        os.wait()


def _play_forked(kind: Any, descriptor: int, others: set[int], parent: int) -> NoReturn:
    """The life of a forked process. It leaves without taking down what it shares with its parent."""
    code = 1
    try:
        _die_with(parent)
        for other in others:
            os.close(other)
        play(kind, descriptor)
        code = 0
    except Exception:  # noqa: BLE001 - the end of the process: shown as the interpreter would show it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with(parent: int) -> None:
    """Asks the kernel for SIGKILL at the parent's death, as `runtime/orphan.py` does for a program."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(f"process {parent} ended while it forked")


def play(kind: Any, descriptor: int) -> None:
    """Answers one pipe until it closes."""
    pipe: Connection[Any, Any] = Connection(descriptor)
    built = None
    try:
        built = kind(**pipe.recv())
        tune()  # as the product's own processes do; peers' processes get the same
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
