"""What travels: the schema of an update, positions, the pairs codec, batches, shards and filters.

Names are loaded when first asked for, so that whoever needs only a position does not wait for Arrow and numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.updates.batch import Update, UpdateBatch
    from tailrace.updates.filters import Filter
    from tailrace.updates.pairs import decode_pairs, encode_pairs
    from tailrace.updates.position import Checkpoint, LinePosition, Marker, Position, Witness
    from tailrace.updates.schema import PAIRS_TYPE, UPDATE_SCHEMA
    from tailrace.updates.sharding import shard_of

__all__ = [
    "PAIRS_TYPE",
    "UPDATE_SCHEMA",
    "Checkpoint",
    "Filter",
    "LinePosition",
    "Marker",
    "Position",
    "Update",
    "UpdateBatch",
    "Witness",
    "decode_pairs",
    "encode_pairs",
    "shard_of",
]

_HOMES = {
    "PAIRS_TYPE": "schema",
    "UPDATE_SCHEMA": "schema",
    "Checkpoint": "position",
    "Filter": "filters",
    "LinePosition": "position",
    "Marker": "position",
    "Position": "position",
    "Update": "batch",
    "UpdateBatch": "batch",
    "Witness": "position",
    "decode_pairs": "pairs",
    "encode_pairs": "pairs",
    "shard_of": "sharding",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
