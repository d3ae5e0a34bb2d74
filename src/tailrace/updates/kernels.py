"""Machine code over Arrow buffers: how a kernel is compiled, and the few memory instructions that Python lacks.

A kernel is a function over flat numpy arrays that numba compiles to machine code, kept on disk between runs; it never
holds the GIL. Arrow buffers come in as `uint8` arrays, so that numbers wider than a byte are read by unaligned loads,
and bytes are compared and copied by the machine's own instructions rather than one at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Number: TypeAlias = Any  # an int to Python, an int64 (or uint64, or float64) to the machine

EMPTY_BYTES: Bytes = np.zeros(0, np.uint8)


def kernel(function: F) -> F:
    """Compiles a function over numpy arrays; the type that it was written with stays."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: F) -> F:
    """A kernel that is pasted into its callers by LLVM: for the few lines that run once per row."""
    return cast(F, numba.njit(cache=True, nogil=True, inline="never", forceinline=True)(function))


def _load(bits: int, result: Any) -> Any:
    def typed(typing_context: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            proxy: Any = cgutils.create_struct_proxy(signature.args[0])  # type: ignore[no-untyped-call]
            array = proxy(context, builder, value=arguments[0])
            pointer = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            word.align = 1
            return word

        return result(data, types.int64), generate

    return typed


# An unaligned little-endian number at a byte offset; nothing checks bounds.
load_u64: Any = intrinsic(_load(64, types.uint64))
load_u32: Any = intrinsic(_load(32, types.uint32))
load_u16: Any = intrinsic(_load(16, types.uint16))


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


# How many low bits of a uint64 are zero; 64 of zero.
trailing_zeros: Any = intrinsic(_trailing_zeros)


@inlined
def same_bytes(left: Bytes, left_at: Number, right: Bytes, right_at: Number, length: Number) -> bool:
    """memcmp() == 0, eight bytes a step; the last step overlaps the one before it."""
    if length >= 8:
        at = 0
        last = length - 8
        while at < last:
            if load_u64(left, left_at + at) != load_u64(right, right_at + at):
                return False
            at += 8
        return bool(load_u64(left, left_at + last) == load_u64(right, right_at + last))
    if length >= 4:
        if load_u32(left, left_at) != load_u32(right, right_at):
            return False
        last = length - 4
        return bool(load_u32(left, left_at + last) == load_u32(right, right_at + last))
    for at in range(length):  # noqa: SIM110 - numba compiles no generator expressions
        if left[left_at + at] != right[right_at + at]:
            return False
    return True


@inlined
def copy_bytes(target: Bytes, target_at: Number, source: Bytes, source_at: Number, length: Number) -> None:
    """memcpy(); LLVM turns the loop over a slice into it."""
    for at in range(length):
        target[target_at + at] = source[source_at + at]


def _pointer(kind: Any) -> Any:
    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(kind).as_pointer())

        return types.CPointer(kind)(types.int64), generate  # type: ignore[no-untyped-call]

    return typed


# The array of a shape that begins at one of the pointers below.
carray: Any = getattr(numba, "carray")  # noqa: B009 not exported to type checkers

# Numbers that lie at a memory address, as `carray` takes them. Whoever passes an address keeps the memory.
u8_at: Any = intrinsic(_pointer(types.uint8))
i32_at: Any = intrinsic(_pointer(types.int32))
i64_at: Any = intrinsic(_pointer(types.int64))
u64_at: Any = intrinsic(_pointer(types.uint64))
f64_at: Any = intrinsic(_pointer(types.float64))
