"""CRC32C, the checksum of RocksDB's log records and of many other formats.

The CPU's `crc32` instruction takes eight bytes per cycle but needs three cycles for an answer, so one chain of them
runs at a third of what the CPU can do. Here three chains run over three thirds of the data at once. Their remainders
are joined with carry-less multiplication: moving a remainder over n words of data is multiplying it by x^(64n) modulo
the polynomial. A CPU that lacks either instruction gets table look-ups, eight bytes at a time ("slicing by 8").

`checksum(address, size)` and `masked(address, size)` are kernels; RocksDB stores checksums masked, because computing
the CRC of data that contains CRCs is weak.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from tailrace.sources.memory import load8, load64
from tailrace.updates.kernels import kernel

POLYNOMIAL: Final = 0x82F63B78  # Castagnoli, bits reversed
MASK_DELTA: Final = 0xA282EAD8
_STREAM_WORDS: Final = 256  # the longest third that is joined at once: 2 KiB of each stream
_U32: Final = 0xFFFFFFFF


def _has_instructions() -> bool:
    features = binding.get_host_cpu_features()
    return bool(features.get("sse4.2") and features.get("pclmul"))


ACCELERATED: Final = _has_instructions()


def _tables() -> npt.NDArray[np.int64]:
    """tables[k][b]: the remainder of byte b followed by k zero bytes."""
    tables = np.zeros((8, 256), dtype=np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        before = tables[k - 1]
        tables[k] = (before >> 8) ^ tables[0][before & 0xFF]
    return tables


def _power(exponent: int) -> int:
    """x^exponent modulo the polynomial, bits reversed."""
    value = 1 << 31
    for _ in range(exponent):
        value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
    return value


def _shifts() -> npt.NDArray[np.int64]:
    """shifts[n] = x^(64n - 33): what moves a remainder over n words.

    The instruction that reduces the 64-bit product multiplies by x^32 itself, and a product of two bit-reversed
    numbers is read one place off: 33 in all.
    """
    shifts = np.zeros(2 * _STREAM_WORDS + 1, dtype=np.int64)
    shifts[1] = _power(31)
    value = int(shifts[1])
    for n in range(2, len(shifts)):
        for _ in range(64):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        shifts[n] = value
    return shifts


_TABLES: Final = _tables()
_SHIFTS: Final = _shifts()


def _crc64_typed(_context: Any, crc: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        i64 = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", [], ir.FunctionType(i64, [i64, i64]))
        return builder.call(function, arguments)

    return types.int64(types.int64, types.int64), codegen


def _crc8_typed(_context: Any, crc: Any, byte: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        i64, i32, i8 = ir.IntType(64), ir.IntType(32), ir.IntType(8)
        function = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.32.8", [], ir.FunctionType(i32, [i32, i8]))
        crc = builder.call(function, [builder.trunc(arguments[0], i32), builder.trunc(arguments[1], i8)])
        return builder.zext(crc, i64)

    return types.int64(types.int64, types.int64), codegen


def _multiply_typed(_context: Any, left: Any, right: Any) -> Any:
    """The low 64 bits of the carry-less product."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        i64, i8 = ir.IntType(64), ir.IntType(8)
        pair = ir.VectorType(i64, 2)
        function = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", [], ir.FunctionType(pair, [pair, pair, i8]))
        zero = ir.Constant(ir.IntType(32), 0)
        operands = [builder.insert_element(ir.Constant(pair, [0, 0]), value, zero) for value in arguments]
        return builder.extract_element(builder.call(function, [*operands, ir.Constant(i8, 0)]), zero)

    return types.int64(types.int64, types.int64), codegen


_crc64: Any = intrinsic(_crc64_typed)  # (crc, word) -> crc
_crc8: Any = intrinsic(_crc8_typed)
_multiply: Any = intrinsic(_multiply_typed)


@kernel
def by_instruction(address: int, size: int) -> int:
    crc = _U32
    end = address + size
    while end - address >= 48:
        words = min((end - address) // 24, _STREAM_WORDS)
        stride = words * 8
        second = 0
        third = 0
        for at in range(address, address + stride, 8):
            crc = _crc64(crc, load64(at))
            second = _crc64(second, load64(at + stride))
            third = _crc64(third, load64(at + 2 * stride))
        joined = _multiply(crc, _SHIFTS[2 * words]) ^ _multiply(second, _SHIFTS[words])
        crc = _crc64(0, joined) ^ third
        address += 3 * stride
    while end - address >= 8:
        crc = _crc64(crc, load64(address))
        address += 8
    while address < end:
        crc = _crc8(crc, load8(address))
        address += 1
    return int(crc ^ _U32)


@kernel
def by_table(address: int, size: int) -> int:
    """The fallback: the same answer from look-ups."""
    tables = _TABLES
    crc = _U32
    end = address + size
    while end - address >= 8:
        low = load64(address) ^ crc
        crc = (
            tables[7, low & 0xFF]
            ^ tables[6, (low >> 8) & 0xFF]
            ^ tables[5, (low >> 16) & 0xFF]
            ^ tables[4, (low >> 24) & 0xFF]
            ^ tables[3, (low >> 32) & 0xFF]
            ^ tables[2, (low >> 40) & 0xFF]
            ^ tables[1, (low >> 48) & 0xFF]
            ^ tables[0, (low >> 56) & 0xFF]
        )
        address += 8
    while address < end:
        crc = tables[0, (crc ^ load8(address)) & 0xFF] ^ (crc >> 8)
        address += 1
    return int(crc ^ _U32)


checksum: Any = by_instruction if ACCELERATED else by_table


@kernel
def masked(address: int, size: int) -> int:
    """The checksum as RocksDB stores it: rotated by 15 bits, plus a constant."""
    crc = checksum(address, size)
    return int((((crc >> 15) | (crc << 17)) + MASK_DELTA) & _U32)


def unmask(stored: int) -> int:
    rotated = (stored - MASK_DELTA) & _U32
    return ((rotated >> 17) | (rotated << 15)) & _U32


def checksum_of(data: bytes) -> int:
    """The CRC32C of some bytes, for callers outside kernels."""
    array = np.frombuffer(data, dtype=np.uint8)
    return int(checksum(array.ctypes.data, len(data)))
