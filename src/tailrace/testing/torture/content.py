"""What a numbered update holds, and who should get it: pure functions that all processes of a torture run share.

An update is (shard, number): numbers count up by one per shard. The rest follows from these two and the run's seed, and
carries a checksum over the key and all its pairs, so that a receiver can tell whether it arrived whole, and the checker
whether it is the one that was sent.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

TABLE: Final = "torture"
DATASET: Final = "torture"
SHARDS: Final = 8
# Short, so that stops and half-open connections of a second or two are long enough to lose a lease.
PUBLISHER_SETTINGS: Final = {"marker_interval_s": 0.5, "heartbeat_s": 0.3, "lease_s": 1.5, "lease_margin_s": 0.3}
KEYS_PER_SHARD: Final = 500
COLORS: Final = ("red", "green", "blue")
MAX_PADDING_BYTES: Final = 600

Numbers = npt.NDArray[np.int64]
Wanted = Callable[[Numbers, Numbers], npt.NDArray[np.bool_]]


def key_of(shard: int, number: int) -> bytes:
    return b"%d/%d" % (shard, number % KEYS_PER_SHARD)


def pairs_of(seed: int, shard: int, number: int) -> tuple[dict[str, bytes], int]:
    """The pairs, the checksum among them, and the checksum."""
    draw = random.Random(f"{seed}/{shard}/{number}")
    pairs = {
        "shard": b"%d" % shard,
        "number": b"%d" % number,
        "color": COLORS[number % len(COLORS)].encode(),
        "padding": draw.randbytes(draw.randrange(MAX_PADDING_BYTES)),
    }
    checksum = checksum_of(key_of(shard, number), pairs)
    return {**pairs, "checksum": b"%d" % checksum}, checksum


def checksum_of(key: bytes, pairs: Mapping[str, bytes]) -> int:
    """Over the key and every pair but the checksum itself, each with its length."""
    checksum = zlib.crc32(key)
    for name in sorted(pairs):
        if name != "checksum":
            checksum = zlib.crc32(b"%d %s %d " % (len(name), name.encode(), len(pairs[name])), checksum)
            checksum = zlib.crc32(pairs[name], checksum)
    return checksum


def identity(key: bytes, pairs: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """(shard, number, checksum) of a received update, or None if its content is damaged."""
    try:
        shard, number, said = int(pairs["shard"]), int(pairs["number"]), int(pairs["checksum"])
        whole = checksum_of(key, pairs) == said and key == key_of(shard, number)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return (shard, number, said) if whole else None


@dataclass(frozen=True)
class TestApplication:
    """One application of the run: its filter as a user writes it, and the same in plain numpy."""

    __test__ = False

    name: str
    filter: str | None
    wants: Wanted
    subscribers: int = 1


APPLICATIONS: Final = (
    TestApplication("everything", None, lambda shards, numbers: np.ones(len(shards), np.bool_), subscribers=2),
    TestApplication("red", "color = 'red'", lambda shards, numbers: numbers % len(COLORS) == 0),
    TestApplication(
        "some",
        "NOT color = 'green' AND shard IN ('1','3','5') OR number = '1'",
        lambda shards, numbers: (numbers % len(COLORS) != 1) & np.isin(shards, (1, 3, 5)) | (numbers == 1),
    ),
)
