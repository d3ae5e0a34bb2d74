"""The client's side of a write stream over a transport that does what no real one should."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tailrace.errors import Disconnected
from tailrace.store.client_stream import ClientStream, Outgoing, Waiting
from tailrace.store.operations import put
from tests.store.conftest import WAIT_S


class BrokenTransport:
    """A `StreamWriter` whose writing, or reading, fails in an unforeseen way."""

    def __init__(self, *, writing: BaseException | None = None, reading: BaseException | None = None) -> None:
        self._writing = writing
        self._reading = reading
        self._written = threading.Event()
        self._done = threading.Event()

    def write_metadata(self, metadata: bytes) -> None:
        self._written.set()
        if self._writing is not None:
            raise self._writing

    def read(self) -> bytes | None:
        if self._reading is None:
            self._done.wait()  # a server ends the stream once it was told that it heard the last
            return None
        self._written.wait()
        raise self._reading

    def done_writing(self) -> None:
        self._done.set()

    def close(self) -> None: ...


def stream_over(transport: Any, answered: list[tuple[int, int]]) -> ClientStream:
    return ClientStream(transport, "shop:1", lambda writes, size: answered.append((writes, size)))


def one_write() -> Outgoing:
    future: Waiting = Future()
    return Outgoing([[put("t", b"k", b"v")]], None, [future], None, 2)


@pytest.mark.parametrize("failing", ["writing", "reading"])
def test_an_unforeseen_failure_breaks_the_stream_and_nobody_waits_for_ever(failing: str) -> None:
    answered: list[tuple[int, int]] = []
    stream = stream_over(BrokenTransport(**{failing: OverflowError("too big")}), answered)
    outgoing = one_write()

    assert stream.send(outgoing)

    with pytest.raises(Disconnected, match=r"shop:1: the client failed: OverflowError: too big; .* may or may not"):
        outgoing.futures[0].result(WAIT_S)
    assert stream.join(WAIT_S)
    assert not stream.send(one_write())
    assert answered == [(1, 2)]


def test_a_caller_who_is_interrupted_while_it_sends_leaves_nobody_waiting() -> None:
    answered: list[tuple[int, int]] = []
    stream = stream_over(BrokenTransport(writing=KeyboardInterrupt()), answered)
    outgoing = one_write()

    with pytest.raises(KeyboardInterrupt):
        stream.send(outgoing)

    with pytest.raises(Disconnected):
        outgoing.futures[0].result(WAIT_S)
    assert stream.join(WAIT_S)
    assert not stream.send(one_write())
    assert answered == [(1, 2)]
