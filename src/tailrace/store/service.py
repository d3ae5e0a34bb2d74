"""The store's Flight front: writes up one stream, reads by key and range, and how far the log is safe.

One service carries all stores of a process, told apart by dataset. It stands on a `tailrace.wire.server.Server`, beside
the publisher where they share a process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Event, Lock
from typing import Any, Final

import pyarrow as pa

from tailrace.errors import NotFound, ProtocolMismatch
from tailrace.store.engine import Store
from tailrace.store.write_stream import HEARTBEAT_S, WriteStream
from tailrace.wire.callers import Action, Caller
from tailrace.wire.messages import encode, require_version
from tailrace.wire.server import ActionHandler, Service, Stream
from tailrace.wire.store_messages import (
    NO_ROWS,
    ROWS_SCHEMA,
    DescribeStore,
    FollowHorizon,
    GetRows,
    GetRowsReply,
    Rows,
    Safe,
    StoreDescription,
    decode_open_writes,
    decode_store_ticket,
    decode_store_up,
)

SCAN_BATCH_BYTES: Final = 1 << 20
STOP_CHECKS_PER_HEARTBEAT: Final = 5
MAX_KEYS_PER_GET: Final = 10_000
MAX_GET_BYTES: Final = 64 << 20

Batches = Iterator[pa.RecordBatch | tuple[pa.RecordBatch, bytes]]


class StoreService(Service):
    """`stores` by dataset; `lines` names a store's line where it is not called like its dataset."""

    tickets = frozenset({"FollowHorizon", "ScanRows"})
    commands = frozenset({"OpenWrites"})

    def __init__(self, stores: Mapping[str, Store], lines: Mapping[str, str] | None = None) -> None:
        self._stores = dict(stores)
        self._lines = dict(lines or {})
        self._stopping = Event()
        self._lock = Lock()
        self._streams: set[WriteStream] = set()

    def actions(self) -> Mapping[str, ActionHandler]:
        return {"DescribeStore": self._describe, "GetRows": self._get}

    def get(self, caller: Caller, ticket: bytes) -> Stream:
        asked = decode_store_ticket(ticket)
        require_version(asked.version)
        store = self._store(caller, "read", asked.dataset)
        if isinstance(asked, FollowHorizon):
            return Stream(ROWS_SCHEMA, self._horizon(store))
        rows = store.scan(asked.table, asked.begin, asked.end, asked.limit)
        return Stream(ROWS_SCHEMA, scanned(rows))

    def put(self, caller: Caller, command: bytes, reader: Any, writer: Any) -> bool:
        asked = decode_open_writes(command)
        require_version(asked.version)
        stream = WriteStream(self._store(caller, "write", asked.dataset), reader, writer)
        with self._lock:
            self._streams.add(stream)
        try:
            if self._stopping.is_set():
                stream.say_goodbye()
            stream.serve()
        finally:
            with self._lock:
                self._streams.discard(stream)
        return True

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            for stream in self._streams:
                stream.say_goodbye()

    def _store(self, caller: Caller, action: Action, dataset: str) -> Store:
        caller.require(action, dataset)
        found = self._stores.get(dataset)
        if found is None:
            known = ", ".join(sorted(self._stores)) or "no dataset"
            raise NotFound(what="dataset", name=dataset, remedy=f"this store holds {known}")
        return found

    def _describe(self, caller: Caller, body: bytes) -> bytes:
        asked = decode_store_up(body)
        if not isinstance(asked, DescribeStore):
            raise ProtocolMismatch(reason=f"DescribeStore carries a {type(asked).__name__}")
        require_version(asked.version)
        store = self._store(caller, "read" if caller.may("read", asked.dataset) else "write", asked.dataset)
        failure = store.failure()
        return encode(
            StoreDescription(
                path=str(store.path),
                identity=store.identity(),
                line=self._lines.get(asked.dataset, asked.dataset),
                era=store.era,
                shards=store.options.shards,
                durability=store.options.durability,
                safe_through=store.safe_through(),
                head=store.latest_sequence(),
                tables=store.tables(),
                failure=str(failure) if failure else "",
            )
        )

    def _get(self, caller: Caller, body: bytes) -> bytes:
        asked = decode_store_up(body)
        if not isinstance(asked, GetRows):
            raise ProtocolMismatch(reason=f"GetRows carries a {type(asked).__name__}")
        if len(asked.keys) > MAX_KEYS_PER_GET:
            raise ProtocolMismatch(reason=f"{len(asked.keys)} keys asked for at once; at most {MAX_KEYS_PER_GET}")
        values = self._store(caller, "read", asked.dataset).get(asked.table, asked.keys)
        size = sum(len(value) for value in values if value is not None)
        if size > MAX_GET_BYTES:
            raise ProtocolMismatch(reason=f"the values have {size} bytes, at most {MAX_GET_BYTES}; ask for fewer keys")
        return encode(GetRowsReply(values))

    def _horizon(self, store: Store) -> Batches:
        """How far the log is safe: now, at each change, and every second. Changes that come together are one."""
        told = store.safe_through()
        while not self._stopping.is_set():
            yield NO_ROWS, encode(Safe(store.era, told))
            for _ in range(STOP_CHECKS_PER_HEARTBEAT):
                safe = store.wait_beyond(told, HEARTBEAT_S / STOP_CHECKS_PER_HEARTBEAT)
                if safe > told or self._stopping.is_set():
                    break
            told = safe


def scanned(rows: Iterator[tuple[bytes, bytes]]) -> Batches:
    """Rows in record batches of about a megabyte."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in rows:
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
        if size >= SCAN_BATCH_BYTES:
            yield _rows(keys, values)
            keys, values, size = [], [], 0
    if keys:
        yield _rows(keys, values)


def _rows(keys: list[bytes], values: list[bytes]) -> tuple[pa.RecordBatch, bytes]:
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA), encode(Rows())
