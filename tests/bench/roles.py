"""A small role for the tests of `bench.processes`."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class Counting:
    def __init__(self, *, start: int) -> None:
        if start < 0:
            raise ValueError("start is negative")
        self._number = start

    def add(self, number: int) -> int:
        self._number += number
        return self._number

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("no such luck")

    def write(self, fifo: Path) -> None:
        fifo.write_text("met")  # blocks until another process reads

    def read(self, fifo: Path) -> str:
        return fifo.read_text()

    def close(self) -> None:
        """Holds nothing."""


class Threaded(Counting):
    """Has a thread before it is forked."""

    @staticmethod
    def prepare() -> None:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
