"""Raw memory for decode kernels: loads from any address, and block copies through the C library.

Kernels work on addresses (int64) rather than on arrays, because what they read and what they fill are Arrow buffers,
and because a bulk copy of a whole blob is several times faster than a loop over bytes. Nothing here checks bounds:
a kernel compares with the end of its input before it loads.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I8 = ir.IntType(8)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _load(bits: int) -> Any:
    def typing(_context: Any, address: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            loaded = builder.load(_pointer(builder, arguments[0], bits), align=1)
            return loaded if bits == 64 else builder.zext(loaded, ir.IntType(64))

        return types.int64(types.int64), codegen

    typing.__name__ = f"load{bits}"
    return intrinsic(typing)


def _store(bits: int) -> Any:
    def typing(_context: Any, address: Any, value: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            builder.store(value, _pointer(builder, arguments[0], bits), align=1)
            return _context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    typing.__name__ = f"store{bits}"
    return intrinsic(typing)


# load(address) -> number, unsigned but for 64 bits; store(address, number): unaligned, little endian
load8: Any = _load(8)
load16: Any = _load(16)
load32: Any = _load(32)
load64: Any = _load(64)
store8: Any = _store(8)
store32: Any = _store(32)
store64: Any = _store(64)


def _block(name: str) -> Any:
    def typing(_context: Any, target: Any, source: Any, size: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = _I8.as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, ir.IntType(64), ir.IntType(1)])
            function = builder.module.declare_intrinsic(name, [pointer, pointer, ir.IntType(64)], kind)
            target, source = (_pointer(builder, address, 8) for address in arguments[:2])
            builder.call(function, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
            return _context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    typing.__name__ = name.rpartition(".")[2]
    return intrinsic(typing)


copy: Any = _block("llvm.memcpy")  # copy(target, source, size): the two must not overlap
move: Any = _block("llvm.memmove")  # move(target, source, size): they may
