"""The header record that opens each write batch of the embedded store's log.

The store puts it, under one constant key, into a column family of its own, so that commit time, transaction, the number
of operations and their shards become durable with the operations themselves and travel in the same log record. RocksDB
may merge several write batches into one log record; each then still begins with its header, in mid-record.

Little endian: magic `F5 54 48` and a version byte, committed_at i64 (µs since the epoch), transaction u64, count u32,
shard_count u32, then shard_count × i32. `shard_count` is 1 where one shard holds all operations, else it equals count.
The header consumes one sequence number itself and is not an update.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tailrace.errors import UpdateInvalid, VersionTooNew

HEADER_FAMILY: Final = "__tailrace"
HEADER_KEY: Final = b"h"
HEADER_MAGIC: Final = b"\xf5TH"
HEADER_VERSION: Final = 1

_FIXED: Final = struct.Struct("<3sBqQII")
HEADER_FIXED_BYTES: Final = _FIXED.size


@dataclass(frozen=True, slots=True)
class Header:
    """What a header record says; `shards` has one entry per operation."""

    committed_at_us: int
    transaction: int
    count: int
    shards: npt.NDArray[np.int32]


def encode_header(committed_at_us: int, transaction: int, shards: npt.NDArray[np.int32]) -> bytes:
    """The header of a write batch whose operations lie in `shards`, one entry per operation in batch order."""
    count = len(shards)
    if count and (shards[0] == shards).all():
        shards = shards[:1]
    fixed = _FIXED.pack(HEADER_MAGIC, HEADER_VERSION, committed_at_us, transaction, count, len(shards))
    return fixed + np.ascontiguousarray(shards, dtype="<i4").tobytes()


def decode_header(value: bytes) -> Header:
    if len(value) < HEADER_FIXED_BYTES:
        raise UpdateInvalid(reason=f"a header record has {len(value)} bytes, at least {HEADER_FIXED_BYTES} are needed")
    magic, version, committed_at_us, transaction, count, shard_count = _FIXED.unpack_from(value)
    if magic != HEADER_MAGIC:
        raise UpdateInvalid(reason=f"a header record begins with {magic.hex()}, not {HEADER_MAGIC.hex()}")
    if version != HEADER_VERSION:
        raise VersionTooNew(what="a store's header record", found=version, known=HEADER_VERSION)
    if shard_count not in (1, count) or len(value) != HEADER_FIXED_BYTES + 4 * shard_count:
        reason = f"a header record of {len(value)} bytes names {shard_count} shards for {count} operations"
        raise UpdateInvalid(reason=reason)
    shards = np.frombuffer(value, dtype="<i4", offset=HEADER_FIXED_BYTES)
    if shard_count == 1 and count != 1:
        shards = np.full(count, shards[0], dtype=np.int32)
    return Header(committed_at_us, transaction, count, shards.astype(np.int32))
