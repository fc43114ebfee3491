"""Products of float32 rows with float16 weights, written for LLVM, which numba compiles.

Weights (out, in) lie in blocks of 32 outputs, (out / BLOCK, in, BLOCK), so each input of a block is
a line of the cache. A tile multiplies up to MOST rows by a block, with its sums in registers, so
each weight comes from memory, and becomes float32, once for so many rows. Each sum runs over the
inputs in order, one fused multiply-add after another, whatever the tile. So a row's product has the
same bits in a pass of one token and in any other, and with vectors of any length.
"""

from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from decoders.engine.kernels.vectors import (
    F32,
    I32,
    I64,
    LANES,
    WIDE,
    Loop,
    address,
    choose,
    function,
    load,
    multiply_add,
    splat,
    store,
    zeros,
)

# AVX-512 has 32 registers of 16 numbers, so all sums of 14 rows fit: 28. Otherwise there are 16 of
# 8, and more than three rows go twice through a block, for two of its vectors at a time.
SUMS, MOST = (28, 14) if WIDE else (12, 6)  # MOST: rows of a tile
BLOCK = 32  # outputs
LINE = 64  # bytes of a line of the cache, and of an input of a block
AHEAD = 128  # lines that are asked for before they are needed
HALVES = ir.VectorType(ir.HalfType(), LANES)


def fetch(builder: Any, place: Any) -> None:
    """Ask for a line of the cache before it is needed; where no memory is, it does nothing."""
    byte = ir.IntType(8).as_pointer()
    name, kind = "llvm.prefetch.p0i8", ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(call, [builder.inttoptr(place, byte), I32(0), I32(2), I32(1)])  # to read, into L2


def sums(builder: Any, rows: int, columns: range, arguments: Any) -> None:
    """Write the loop over the inputs for some rows and some of a block's vectors.

    Args:
        builder: where to write
        rows: the number of rows
        columns: the block's vectors
        arguments: those of `multiply_tile`, without the number of rows
    """
    x, weights, size, out, width, factor = arguments
    places = [(row, column) for row in range(rows) for column in columns]
    lines = [address(builder, x, (size, I64(4 * row))) for row in range(rows)]
    # The bus would wait while the sums take longer than the weights, or in a second way through the
    # block. What the processor fetches by itself ends with a page of 4 kB.
    ahead = I64(AHEAD * LINE) if len(columns) * LANES == BLOCK else builder.mul(size, I64(LINE))
    loop = Loop(builder, size, 1, zeros(len(places)))
    place, offset = address(builder, weights, (loop.i, I64(LINE))), builder.mul(loop.i, I64(4))
    wide = {}
    for column in columns:
        halves = load(builder, address(builder, place, I64(2 * LANES * column)), HALVES, align=2)
        wide[column] = builder.fpext(halves, ir.VectorType(F32, LANES))
    inputs = [splat(builder, load(builder, address(builder, line, offset), F32)) for line in lines]
    fetch(builder, address(builder, place, ahead))
    loop.close(
        [
            multiply_add(builder, wide[column], inputs[row], total)
            for (row, column), total in zip(places, loop.values, strict=True)
        ]
    )
    for (row, column), total in zip(places, loop.values, strict=True):
        target = address(builder, out, (width, I64(4 * row)), I64(4 * LANES * column))
        store(builder, builder.fmul(total, splat(builder, factor)), target)


def tiles(builder: Any, rows: Any, *arguments: Any) -> None:
    """Write the products of 1 to MOST rows with one block, see `multiply_tile`."""
    columns = BLOCK // LANES

    def tile(count: int) -> None:
        together = columns if count * columns <= SUMS else columns // 2
        for first in range(0, columns, together):
            sums(builder, count, range(first, first + together), arguments)

    choose(builder, rows, MOST, tile)


@intrinsic
def multiply_tile(
    context: Any, rows: Any, x: Any, weights: Any, size: Any, out: Any, width: Any, factor: Any
) -> Any:
    """The product of 1 to MOST rows with one block.

    Its arguments are the number of rows, their address and the block's, the number of inputs, the
    address of the first output, the distance of two rows of outputs, and a factor.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [*[I64] * 6, F32]
        builder.call(function(builder.module, "tiles", ir.VoidType(), kinds, tiles), arguments)
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
