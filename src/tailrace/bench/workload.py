"""The updates that benches write: a key and four pairs, of an exact size, that look like a social application's.

An update's size is what an application gets of it: its key, and the names and values of its pairs. What the log, the
codec or Arrow adds to that counts in nobody's favour.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from random import Random
from typing import Final

TABLE: Final = "posts"
TOPICS: Final = tuple(f"topic-{number:02d}" for number in range(40))
SEED: Final = 4
SHARDS: Final = 16
UPDATES_PER_WRITE: Final = 100
DISTINCT_WRITES: Final = 200  # these repeat, under new sequence numbers: 20,000 rows that change all the time
_USERS: Final = 5_000
_TEXT_BYTES: Final = 1 << 16

Row = tuple[bytes, dict[str, bytes]]


def size_of(row: Row) -> int:
    key, pairs = row
    return len(key) + sum(len(name) + len(value) for name, value in pairs.items())


def rows(count: int, size_bytes: int, seed: int = SEED) -> Iterator[Row]:
    """`count` keys with their pairs, each of exactly `size_bytes`."""
    random = Random(seed)
    text = base64.b64encode(random.randbytes(_TEXT_BYTES))
    for number in range(count):
        key = b"post:%06d" % number
        pairs = {
            "user": b"%d" % random.randrange(_USERS),
            "topic": random.choice(TOPICS).encode(),
            "score": b"%d" % random.randrange(100_000),
        }
        left = size_bytes - size_of((key, pairs)) - len("body")
        assert 0 <= left < _TEXT_BYTES // 2, f"an update cannot have {size_bytes} bytes"
        start = random.randrange(len(text) - left)
        yield key, {**pairs, "body": text[start : start + left]}
