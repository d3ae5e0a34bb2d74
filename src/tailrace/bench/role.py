"""The process of one role: `python -m tailrace.bench.role MODULE:CLASS PIPE`.

Builds the role from the arguments that the pipe delivers first, then answers calls until the pipe closes.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any


def main(role: str, descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the bench, which closes the pipe
    pipe: Connection[Any, Any] = Connection(descriptor)
    module, _, name = role.partition(":")
    built = None
    try:
        built = getattr(import_module(module), name)(**pipe.recv())
        pipe.send(("done", None))
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
    main(sys.argv[1], int(sys.argv[2]))
