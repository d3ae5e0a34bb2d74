"""CRC32C by instruction and by table: known answers, each other's answers, and RocksDB's mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.sources import crc32c

KNOWN = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
]
KERNELS = [crc32c.by_table, *([crc32c.by_instruction] if crc32c.ACCELERATED else [])]


def bit_by_bit(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (crc32c.POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "expected"), KNOWN)
@pytest.mark.parametrize("kernel", KERNELS)
def test_known_answers(kernel: object, data: bytes, expected: int) -> None:
    array = np.frombuffer(data, dtype=np.uint8)
    assert kernel(array.ctypes.data, len(data)) == expected  # type: ignore[operator]


@given(st.binary(max_size=400), st.integers(0, 9))
def test_any_length_at_any_alignment(data: bytes, shift: int) -> None:
    held = np.frombuffer(bytes(shift) + data, dtype=np.uint8)
    for kernel in KERNELS:
        assert kernel(held.ctypes.data + shift, len(data)) == bit_by_bit(data)


@pytest.mark.parametrize("size", [6143, 6144, 6145, 6191, 6192, 12288, 32761, 1_000_003])
def test_long_data_is_joined_from_streams(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    answers = {int(kernel(data.ctypes.data, size)) for kernel in [*KERNELS, crc32c.checksum]}
    assert len(answers) == 1


def test_masking_is_what_rocksdb_stores() -> None:
    data = np.frombuffer(b"123456789", dtype=np.uint8)
    stored = crc32c.masked(data.ctypes.data, 9)
    # ((crc >> 15) | (crc << 17)) + 0xa282ead8, modulo 2^32
    assert stored == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32
    assert crc32c.unmask(stored) == 0xE3069283
