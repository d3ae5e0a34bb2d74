"""Writes shard_vectors.json from the xxhash library alone, so that the vectors do not repeat our own mistakes.

Run it by hand (`python -m tests.updates.make_shard_vectors`) when a case is added; the file is what others test with.
"""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

VECTORS = Path(__file__).with_name("shard_vectors.json")
CASES: list[list[bytes | None]] = [
    [b""],
    [None],
    [b"a"],
    [b"abc"],
    [b"user:1"],
    ["größe".encode()],
    [b"\x00\xff\x80"],
    [b"ab", b"c"],
    [b"a", b"bc"],
    [b"a", None, b""],
    [None, None],
    [bytes(range(27))],  # 31 bytes with its length: one below the four lanes
    [bytes(range(28))],  # 32 bytes: four lanes, nothing left
    [bytes(range(29))],
    [bytes(range(256)) * 4 + b"tail"],
]


def laid_out(values: list[bytes | None]) -> bytes:
    parts = [b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "little") + value for value in values]
    return b"".join(parts)


def vectors() -> list[dict[str, object]]:
    return [
        {
            "values_hex": [None if value is None else value.hex() for value in values],
            "xxh64_hex": f"{xxhash.xxh64_intdigest(laid_out(values)):016x}",
            "shard_of_64": xxhash.xxh64_intdigest(laid_out(values)) % 64,
            "shard_of_1000": xxhash.xxh64_intdigest(laid_out(values)) % 1000,
        }
        for values in CASES
    ]


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1) + "\n")
