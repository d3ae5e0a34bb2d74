"""Decompression of logs that RocksDB wrote with `wal_compression`.

Each logical record is one zstd frame, cut into physical records after compression. Checksums cover what is stored.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa


def decompressed(frame: bytes, method: Literal["zstd"]) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(frame), method) as stream:
        return stream.read()
