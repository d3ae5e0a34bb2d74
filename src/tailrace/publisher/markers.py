"""Where flows' markers are durable: one row per flow, fsynced before `save` returns. Beside them, who has the flows.

A full disk raises `MarkersNotSaved`; markers then stand still, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tailrace.errors import DatabaseFailed, MarkersNotSaved
from tailrace.publisher.ledger import Ledger
from tailrace.runtime.sqlite import Database
from tailrace.updates.position import Marker, Position

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Marker).decode

_HOLD: Final = "INSERT OR REPLACE INTO holders (dataset, application, subscriber) VALUES (?, ?, ?)"
_SAVE: Final = """
    INSERT OR REPLACE INTO markers (dataset, application, shard, marker) VALUES (?, ?, ?, ?)"""


class MarkerStore:
    """Markers of all datasets of one publisher."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def own(self, dataset: str, claimed: int) -> int:
        """Makes the caller the only one who may write what belongs to a dataset; returns its epoch."""
        return self._ledger.own(dataset, claimed)

    def load(self, dataset: str, application: str) -> dict[int, Marker]:
        """By shard; a flow that was never acknowledged has none."""
        rows = self._ledger.read(
            "SELECT shard, marker FROM markers WHERE dataset = ? AND application = ?", (dataset, application)
        )
        return {shard: _decode(marker) for shard, marker in rows}

    def save(self, dataset: str, application: str, markers: Mapping[int, Marker]) -> None:
        """Durable when it returns; all of them or none."""
        rows = [(dataset, application, shard, _encode(marker)) for shard, marker in markers.items()]
        self._write(dataset, _SAVE, rows)

    def holder(self, dataset: str, application: str) -> str:
        """The subscriber that was given the flows last and has not given them back; empty if there is none."""
        rows = self._ledger.read(
            "SELECT subscriber FROM holders WHERE dataset = ? AND application = ?", (dataset, application)
        )
        return str(rows[0][0]) if rows else ""

    def save_holder(self, dataset: str, application: str, subscriber: str) -> None:
        """Durable when it returns."""
        self._write(dataset, _HOLD, [(dataset, application, subscriber)])

    def _write(self, dataset: str, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        try:
            with self._ledger.writing(dataset) as transaction:
                transaction.execute_many(statement, rows)
        except DatabaseFailed as error:
            raise MarkersNotSaved(path=str(self._ledger.path), reason=str(error)) from error


def greatest_marker(ledger: Database, dataset: str) -> Position | None:
    """The furthest place that any flow of a dataset has acknowledged; None if there is none."""
    rows = ledger.read("SELECT marker FROM markers WHERE dataset = ?", (dataset,))
    return max((_decode(marker).position for (marker,) in rows), default=None)
