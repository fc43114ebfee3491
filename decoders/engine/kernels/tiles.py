"""Products of float32 rows with float16 weights, written for LLVM, which numba compiles.

Weights (out, in) lie in blocks of 32 outputs, (out / BLOCK, in, BLOCK), so each input of a block is
a line of the cache. A tile multiplies up to MOST rows by a block, with its sums in registers, so
each weight comes from memory, and becomes float32, once for so many rows. Each sum runs over the
inputs in order, one fused multiply-add after another, whatever the tile. So a row's product has the
same bits in a pass of one token and in any other, and with vectors of any length.
"""

from typing import Any

import torch
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

# AVX-512 has 32 registers of 16 numbers, so all sums of 14 rows fit: 28. Otherwise there are 16 of
# 8, and more than three rows go twice through a block, for two of its vectors at a time.
WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES, SUMS, MOST = (16, 28, 14) if WIDE else (8, 12, 6)  # MOST: rows of a tile
BLOCK = 32  # outputs
AHEAD = 128  # lines that are asked for before they are needed: 8 kB
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR, HALVES = ir.VectorType(F32, LANES), ir.VectorType(ir.HalfType(), LANES)


def splat(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, I32(0))
    lanes = ir.Constant(ir.VectorType(I32, LANES), [I32(0)] * LANES)
    return builder.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), lanes)


def multiply_add(builder: Any) -> Any:
    name, kind = f"llvm.fma.v{LANES}f32", ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


def fetch(builder: Any, block: Any, line: Any) -> None:
    """Ask for a line of a block of weights before it is needed; beyond the last it does nothing."""
    byte = ir.IntType(8).as_pointer()
    name, kind = "llvm.prefetch.p0i8", ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    place = builder.gep(block, [builder.mul(line, I64(BLOCK))])
    builder.call(call, [builder.bitcast(place, byte), I32(0), I32(2), I32(1)])  # to read, into L2


def sums(builder: Any, rows: int, columns: range, arguments: Any) -> None:
    """Write the loop over the inputs for some rows and some of a block's vectors.

    Args:
        builder: where to write
        rows: the number of rows
        columns: the block's vectors
        arguments: those of `multiply_tile`, without the number of rows
    """
    x, weights, size, out, width, factor = arguments
    x, out = (builder.inttoptr(p, F32.as_pointer()) for p in (x, out))
    weights = builder.inttoptr(weights, ir.HalfType().as_pointer())
    lines = [builder.gep(x, [builder.mul(size, I64(row))]) for row in range(rows)]
    places = [(row, column) for row in range(rows) for column in columns]
    before = builder.block
    loop, after = builder.append_basic_block("inputs"), builder.append_basic_block("summed")
    builder.branch(loop)
    builder.position_at_end(loop)
    i = builder.phi(I64)
    i.add_incoming(I64(0), before)
    totals = {place: builder.phi(VECTOR) for place in places}
    for total in totals.values():
        total.add_incoming(ir.Constant(VECTOR, [F32(0.0)] * LANES), before)
    wide = {}
    for column in columns:
        offset = builder.add(builder.mul(i, I64(BLOCK)), I64(column * LANES))
        pointer = builder.bitcast(builder.gep(weights, [offset]), HALVES.as_pointer())
        wide[column] = builder.fpext(builder.load(pointer, align=2), VECTOR)
    inputs = [splat(builder, builder.load(builder.gep(line, [i]))) for line in lines]
    add = multiply_add(builder)
    longer = {p: builder.call(add, [wide[p[1]], inputs[p[0]], totals[p]]) for p in places}
    # The bus would wait while the sums take longer than the weights, and in a second way through
    # the block. The processor's own foresight ends with a page of 4 kB.
    fetch(builder, weights, builder.add(i, I64(AHEAD) if len(columns) * LANES == BLOCK else size))
    following = builder.add(i, I64(1))
    i.add_incoming(following, loop)
    for place, total in totals.items():
        total.add_incoming(longer[place], loop)
    builder.cbranch(builder.icmp_signed("<", following, size), loop, after)
    builder.position_at_end(after)
    for (row, column), total in longer.items():
        offset = builder.add(builder.mul(width, I64(row)), I64(column * LANES))
        pointer = builder.bitcast(builder.gep(out, [offset]), VECTOR.as_pointer())
        builder.store(builder.fmul(total, splat(builder, factor)), pointer, align=4)


def tiles(module: Any) -> Any:
    """The function that multiplies 1 to MOST rows with one block, see `multiply_tile`."""
    name, columns = f"decoders.tile.{LANES}", BLOCK // LANES
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [I64, I64, I64, I64, I64, I64, F32]), name
    )
    # Each part of a program that multiplies brings it along; one of them stays, in no other's code.
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    rows, *arguments = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    end = builder.append_basic_block("end")
    choice = builder.switch(rows, end)
    for count in range(1, MOST + 1):
        together = columns if count * columns <= SUMS else columns // 2
        case = builder.append_basic_block(f"rows{count}")
        choice.add_case(I64(count), case)
        builder.position_at_end(case)
        for first in range(0, columns, together):
            sums(builder, count, range(first, first + together), arguments)
        builder.branch(end)
    builder.position_at_end(end)
    builder.ret_void()
    return function


@intrinsic
def multiply_tile(
    context: Any, rows: Any, x: Any, weights: Any, size: Any, out: Any, width: Any, factor: Any
) -> Any:
    """The product of 1 to MOST rows with one block.

    Its arguments are the number of rows, their address and the block's, the number of inputs (at
    least 1), the address of the first output, the distance of two rows of outputs, and a factor.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.call(tiles(builder.module), arguments)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, types.float32), code


@intrinsic
def pointer(context: Any, address: Any) -> Any:
    """An address as a pointer to float32 numbers."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], F32.as_pointer())

    return types.CPointer(types.float32)(types.int64), code


@intrinsic
def pointer_to_integers(context: Any, address: Any) -> Any:
    """An address as a pointer to int64 numbers."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], I64.as_pointer())

    return types.CPointer(types.int64)(types.int64), code


@intrinsic
def pointer_to_bytes(context: Any, address: Any) -> Any:
    """An address as a pointer to bytes."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.CPointer(types.uint8)(types.int64), code


@intrinsic
def power_of_two(context: Any, bits: Any) -> Any:
    """The float32 number whose exponent field these bits are."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.shl(arguments[0], I32(23)), F32)

    return types.float32(types.int32), code


@intrinsic
def bits_of(context: Any, number: Any) -> Any:
    """The bits of a float32 number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I32)

    return types.int32(types.float32), code


def in_blocks(weight: torch.Tensor) -> torch.Tensor:
    """Lay float16 weights (out, in) out as tiles want them, with zeros up to a whole block.

    Memory of torch begins at a multiple of 64 bytes, which is a line of the cache and of a block.
    """
    width, size = weight.shape
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -width % BLOCK))
    return whole.view(-1, BLOCK, size).transpose(1, 2).contiguous()
