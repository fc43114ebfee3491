"""Words of memory that several threads read and write, for numba to compile."""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

I64 = ir.IntType(64)


def word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


@intrinsic
def look(context: Any, address: Any) -> Any:
    """The word at an address, and then whatever was written before it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(word(builder, arguments[0]), "seq_cst", 8)

    return types.int64(types.int64), code


def changing(operation: str) -> Any:
    """A function of an address and a number that changes the word there by this operation.

    It does so after whatever was written before, and before whatever comes.
    """

    @intrinsic
    def run(context: Any, address: Any, number: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address, number = arguments
            builder.atomic_rmw(operation, word(builder, address), number, "seq_cst")
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return run


put, add = changing("xchg"), changing("add")


@intrinsic
def swap(context: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if the word is `before`; return whether it was."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, before, after = arguments
        found = builder.cmpxchg(word(builder, address), before, after, "seq_cst", "seq_cst")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), code


@intrinsic
def pause(context: Any) -> Any:
    """Let a moment pass in a loop that waits, for the sake of whoever shares the core."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if binding.get_process_triple().startswith("x86_64"):
            name, kind = "llvm.x86.sse2.pause", ir.FunctionType(ir.VoidType(), [])
            known = builder.module.globals
            builder.call(known.get(name) or ir.Function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def bits_of_real(context: Any, number: Any) -> Any:
    """The bits of a float64 number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I64)

    return types.int64(types.float64), code


@intrinsic
def real_of(context: Any, bits: Any) -> Any:
    """The float64 number with these bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), code
