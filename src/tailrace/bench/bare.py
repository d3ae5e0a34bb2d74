"""Role: bare Arrow Flight, the peer that a publisher is measured against.

A plain Flight server that holds the same logs' batches in memory, decoded beforehand in the size that a publisher
reads them in, and streams them to whoever asks. It knows no positions, filters, tokens or markers. Its gate is the
publisher's: all clients are connected, and have their schema, before the first batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.flight as flight

from tailrace.bench.reading import batches_of
from tailrace.bench.written import WrittenLog
from tailrace.updates.schema import UPDATE_SCHEMA


class BareFlightRole:
    """Nothing is held before `serve`."""

    def __init__(self) -> None:
        self._gate = threading.Event()
        self._server: _BareServer | None = None

    def serve(self, logs: Mapping[str, WrittenLog]) -> str:
        """Decodes the logs, by the name that a client's ticket asks for; returns the address."""
        batches = {name: [batch.updates for batch in batches_of(log)] for name, log in logs.items()}
        self._server = _BareServer(batches, self._gate)
        return f"127.0.0.1:{self._server.port}"

    def shut_gate(self) -> None:
        self._gate.clear()

    def open_gate(self) -> float:
        opened_at = time.monotonic()
        self._gate.set()
        return opened_at

    def close(self) -> None:
        self._gate.set()
        if self._server is not None:
            self._server.shutdown()


class _BareServer(flight.FlightServerBase):
    def __init__(self, batches: Mapping[str, list[pa.RecordBatch]], gate: threading.Event) -> None:
        self._batches = batches
        self._gate = gate
        super().__init__("grpc+tcp://127.0.0.1:0")

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        return flight.GeneratorStream(UPDATE_SCHEMA, self._stream(self._batches[ticket.ticket.decode()]))

    def _stream(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._gate.wait()
        yield from batches
