"""The server's side of one write stream, without a network."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tailrace.store.operations import put
from tailrace.store.write_stream import WriteStream
from tailrace.wire.messages import encode
from tailrace.wire.store_messages import Answers, Writes, decode_write_down
from tests.store.conftest import WAIT_S, HeldSyncer, Opens

WRITES_PER_MESSAGE = 5_000


class Client:
    """Sends all its messages as soon as it is read from, and counts the answers."""

    def __init__(self, messages: int) -> None:
        self.read = 0
        self.answered = 0
        self._messages = messages

    def read_chunk(self) -> Any:
        if self.read == self._messages:
            raise StopIteration
        first = self.read * WRITES_PER_MESSAGE
        self.read += 1
        writes = [[put("t", b"%d" % number, b"v")] for number in range(first, first + WRITES_PER_MESSAGE)]
        return SimpleNamespace(data=None, app_metadata=pa.py_buffer(encode(Writes(first, writes))))

    def write(self, buffer: Any) -> None:
        message = decode_write_down(buffer.to_pybytes())
        assert isinstance(message, Answers)
        self.answered += len(message.answers)


class WatchedCondition(threading.Condition):
    """Says when someone waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_for.set()
        return super().wait(timeout)


def test_a_client_is_not_read_from_while_too_much_is_unanswered(open_store: Opens) -> None:
    syncer = HeldSyncer(held=True)
    client = Client(messages=6)
    stream = WriteStream(open_store(syncer=syncer), client, client)
    changed = stream._changed = WatchedCondition()
    serving = threading.Thread(target=stream.serve)
    serving.start()

    assert changed.waited_for.wait(WAIT_S), "the stream never waits"
    assert (client.read * WRITES_PER_MESSAGE, client.answered) == (20_000, 0)

    syncer.release()
    serving.join(WAIT_S)
    assert (client.read * WRITES_PER_MESSAGE, client.answered) == (30_000, 30_000)
