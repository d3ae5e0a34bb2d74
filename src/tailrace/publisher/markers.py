"""Where flows' markers are durable: one row per flow, fsynced before `save` returns.

A marker carries the epoch of the publisher that wrote it. A writer with an older epoch than the row's was superseded by
another owner, and is refused. A full disk raises `MarkersNotSaved`; markers then stand still, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tailrace.errors import DatabaseFailed, Fenced, MarkersNotSaved
from tailrace.runtime.sqlite import Database
from tailrace.updates.position import Marker, Position

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Marker).decode

_SAVE: Final = """
    INSERT INTO markers (dataset, application, shard, epoch, marker) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (dataset, application, shard) DO UPDATE SET epoch = excluded.epoch, marker = excluded.marker"""


class MarkerStore:
    """Markers of all datasets of one publisher."""

    def __init__(self, ledger: Database) -> None:
        self._ledger = ledger

    def load(self, dataset: str, application: str) -> dict[int, Marker]:
        """By shard; a flow that was never acknowledged has none."""
        rows = self._ledger.read(
            "SELECT shard, marker FROM markers WHERE dataset = ? AND application = ?", (dataset, application)
        )
        return {shard: _decode(marker) for shard, marker in rows}

    def save(self, dataset: str, application: str, markers: Mapping[int, Marker], epoch: int) -> None:
        """Durable when it returns; all of them or none."""
        rows = [(dataset, application, shard, epoch, _encode(marker)) for shard, marker in markers.items()]
        try:
            with self._ledger.transaction() as transaction:
                newest = transaction.read_one(
                    "SELECT max(epoch) FROM markers WHERE dataset = ? AND application = ?", (dataset, application)
                )
                if newest and newest[0] is not None and newest[0] > epoch:
                    raise Fenced(what=f"epoch {epoch}", reason=f"markers of {application!r} are at epoch {newest[0]}")
                transaction.execute_many(_SAVE, rows)
        except DatabaseFailed as error:
            raise MarkersNotSaved(path=str(self._ledger.path), reason=str(error)) from error


def greatest_marker(ledger: Database, dataset: str) -> Position | None:
    """The furthest place that any flow of a dataset has acknowledged; None if there is none."""
    rows = ledger.read("SELECT marker FROM markers WHERE dataset = ?", (dataset,))
    return max((_decode(marker).position for (marker,) in rows), default=None)
