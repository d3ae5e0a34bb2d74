"""A small service for the tests of the wire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from tailrace.errors import LogTruncated, NotFound
from tailrace.updates.position import Position
from tailrace.updates.schema import EMPTY_UPDATES, UPDATE_SCHEMA
from tailrace.wire.callers import Caller
from tailrace.wire.messages import Done, HelloReply, encode
from tailrace.wire.server import Service, Stream

Batches = Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]
LARGE = pa.record_batch([pa.array([b"x" * (1 << 20)])], names=["blob"])


class SmallService(Service):
    """Answers `Hello`, fails on `Status` and `Leave`, streams what `batches` gives, counts what is put."""

    tickets = frozenset({"Subscribe"})
    commands = frozenset({"ReadRange"})

    def __init__(self, batches: Callable[[], Batches] = lambda: iter(()), schema: pa.Schema = UPDATE_SCHEMA) -> None:
        self.batches = batches
        self.schema = schema
        self.callers: list[Caller] = []
        self.stopped = threading.Event()
        self.streaming = threading.Event()

    def actions(self) -> Mapping[str, Callable[[Caller, bytes], bytes]]:
        return {"Hello": self._hello, "Status": self._status, "Leave": self._leave, "DeadShow": self._admin}

    def _hello(self, caller: Caller, body: bytes) -> bytes:
        self.callers.append(caller)
        return encode(HelloReply(1, 1, "test", [], []))

    def _status(self, caller: Caller, body: bytes) -> bytes:
        raise LogTruncated(line="shop", after=Position(0, 1), oldest=Position(0, 5))

    def _leave(self, caller: Caller, body: bytes) -> bytes:
        raise ValueError("a bug")

    def _admin(self, caller: Caller, body: bytes) -> bytes:
        caller.require("admin", "shop", "cache")
        return encode(Done())

    def get(self, caller: Caller, ticket: bytes) -> Stream | None:
        self.streaming.set()
        return Stream(self.schema, self.batches())

    def put(self, caller: Caller, command: bytes, reader: Any, writer: Any) -> bool:
        self.streaming.set()
        rows = 0
        for chunk in reader:
            rows += chunk.data.num_rows
            writer.write(b"%d" % rows)
        if rows > 3:
            raise NotFound(what="table", name="t", remedy="create it")
        return True

    def flights(self, caller: Caller) -> list[flight.FlightInfo]:
        descriptor = flight.FlightDescriptor.for_path("shop")
        return [flight.FlightInfo(UPDATE_SCHEMA, descriptor, [], -1, -1)]

    def stop(self) -> None:
        self.stopped.set()


def numbered(count: int) -> Batches:
    for number in range(count):
        yield EMPTY_UPDATES, b"%d" % number
