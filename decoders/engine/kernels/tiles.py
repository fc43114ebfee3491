"""Products of float32 rows with weights of half the size, written for LLVM, which numba compiles.

Weights (out, in) in float16 or bfloat16 lie in blocks of 32 outputs, (out / BLOCK, in, BLOCK), so
each input of a block is a line of the cache. A tile multiplies up to MOST rows by a block, with its
sums in registers, so each weight comes from memory, and becomes float32, once for so many rows.
Each sum runs over the inputs in order, one fused multiply-add after another, whatever the tile. So
a row's product has the same bits in a pass of one token and in any other, and with vectors of any
length.

Weights of large models are read where they are, row by row (`dots`): each sum is then one of PARTS,
over every PARTS-th input, which are added up in one order at the end.
"""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic

from decoders.engine.kernels import NumberType

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8  # numbers of a vector
I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)


class Repeat:
    """A loop that is being written, with values that it carries from one turn to the next.

    Args:
        builder: where to write, which then stands in the loop
        end: the loop goes on while its counter is less
        step: what the counter grows by
        values: those of the first turn

    Attributes:
        i: the counter
        values: those of this turn; after the loop, the last ones
    """

    def __init__(self, builder: Any, end: Any, step: int, values: Sequence[Any] = ()):
        self._builder, self._step, before = builder, step, builder.block
        self._head, body = builder.append_basic_block("head"), builder.append_basic_block("body")
        self._after = builder.append_basic_block("after")
        builder.branch(self._head)
        builder.position_at_end(self._head)
        self.i = builder.phi(I64)
        self.i.add_incoming(I64(0), before)
        self.values = [builder.phi(value.type) for value in values]
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", self.i, end), body, self._after)
        builder.position_at_end(body)

    def close(self, values: Sequence[Any] = ()) -> None:
        """End a turn with the values of the next one; the builder then stands after the loop."""
        builder = self._builder
        self.i.add_incoming(builder.add(self.i, I64(self._step)), builder.block)
        for phi, value in zip(self.values, values, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(self._head)
        builder.position_at_end(self._after)


def zeros(count: int) -> list[Any]:
    return [ir.Constant(VECTOR, [F32(0.0)] * LANES)] * count


def splat(builder: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, I32(0))
    return shuffled(builder, first, first, [0] * LANES)


def shuffled(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """The vector of these lanes of two vectors, those of the second counted after the first's."""
    kind = ir.VectorType(I32, len(lanes))
    return builder.shuffle_vector(a, b, ir.Constant(kind, [I32(lane) for lane in lanes]))


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return called(builder, f"llvm.fma.v{LANES}f32", VECTOR, a, b, c)


def called(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [each.type for each in arguments])
    known = builder.module.globals
    return builder.call(known.get(name) or ir.Function(builder.module, kind, name), arguments)


def address(builder: Any, begin: Any, *terms: Any) -> Any:
    """An address so many bytes after another; each term is a number or a product of two."""
    for term in terms:
        term = builder.mul(*term) if isinstance(term, tuple) else term
        begin = builder.add(begin, term)
    return begin


def load(builder: Any, address: Any, kind: Any = VECTOR, align: int = 4) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def load_as(builder: Any, form: NumberType, address: Any) -> Any:
    if form == NumberType.FLOAT32:
        return load(builder, address)
    stored = ir.VectorType(ir.HalfType() if form == NumberType.FLOAT16 else I16, LANES)
    halves = load(builder, address, stored, align=2)
    if form == NumberType.FLOAT16:
        return builder.fpext(halves, VECTOR)
    return as_real(builder, halves, ir.VectorType(I32, LANES), VECTOR)


def as_real(builder: Any, halves: Any, wide: Any, real: Any) -> Any:
    """Numbers in bfloat16, which are the upper halves of float32 numbers, as such."""
    shift = wide(16) if wide is I32 else ir.Constant(wide, [I32(16)] * LANES)
    return builder.bitcast(builder.shl(builder.zext(halves, wide), shift), real)


def store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def choose(builder: Any, number: Any, most: int, write: Callable[[int], None]) -> None:
    """Write code for each number from 1 on, of which one is carried out; nothing for others."""
    end = builder.append_basic_block("end")
    choice = builder.switch(number, end)
    for count in range(1, most + 1):
        case = builder.append_basic_block(f"case{count}")
        choice.add_case(I64(count), case)
        builder.position_at_end(case)
        write(count)
        builder.branch(end)
    builder.position_at_end(end)


def function(module: Any, name: str, kind: Any, write: Callable[..., Any]) -> Any:
    """A function of a module, which each part of a program brings along and one of them keeps.

    Args:
        module: the module
        name: the function's name
        kind: its type
        write: writes its code, given a builder and the arguments; returns the result or None
    """
    name = f"decoders.{name}.{LANES}"
    if name in module.globals:
        return module.globals[name]
    code = ir.Function(module, kind, name)
    code.linkage = "linkonce_odr"
    code.attributes.add("noinline")  # it would be compiled once for each call
    builder = ir.IRBuilder(code.append_basic_block("entry"))
    value = write(builder, *code.args)
    builder.ret_void() if value is None else builder.ret(value)
    return code


def written(signature: Any, name: str = "") -> Callable[[Callable[..., Any]], Any]:
    """Turn what writes code, given a builder and the arguments, into a function for numba.

    Args:
        signature: its types, of which the result is nothing or float32 if it has a name
        name: that of a `function` of its own; "" if the code stands wherever it is called
    """
    void = signature.return_type == types.void

    def decorate(write: Callable[..., Any]) -> Any:
        @intrinsic
        @wraps(write)  # whose parameters it has, but for the first
        def call(context: Any, *kinds: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                if name:
                    result = ir.VoidType() if void else F32
                    kind = ir.FunctionType(result, [each.type for each in arguments])
                    value = builder.call(function(builder.module, name, kind, write), arguments)
                else:
                    value = write(builder, *arguments)
                return context.get_dummy_value() if void else value

            return signature, code

        return call

    return decorate


# AVX-512 has 32 registers of 16 numbers, so all sums of 14 rows fit: 28. Otherwise there are 16 of
# 8, and more than three rows go twice through a block, for two of its vectors at a time.
SUMS, MOST = (28, 14) if WIDE else (12, 6)  # MOST: rows of a tile
BLOCK = 32  # outputs
LINE = 64  # bytes of a line of the cache, and of an input of a block
AHEAD = 128  # lines that are asked for before they are needed


def fetch(builder: Any, place: Any) -> None:
    """Ask for a line of the cache before it is needed; where no memory is, it does nothing."""
    byte = builder.inttoptr(place, ir.IntType(8).as_pointer())
    how = I32(0), I32(2), I32(1)  # to read, into L2
    called(builder, "llvm.prefetch.p0i8", ir.VoidType(), byte, *how)


def sums(
    builder: Any, rows: int, form: NumberType, columns: range, x: Any, weights: Any, size: Any,
    out: Any, width: Any, factor: Any,
) -> None:  # fmt: skip
    """Write the loop over the inputs for some rows and some vectors of a block (columns)."""
    places = [(row, column) for row in range(rows) for column in columns]
    lines = [address(builder, x, (size, I64(4 * row))) for row in range(rows)]
    # The bus would wait while the sums take longer than the weights, or in a second way through the
    # block. What the processor fetches by itself ends with a page of 4 kB.
    ahead = I64(AHEAD * LINE) if len(columns) * LANES == BLOCK else builder.mul(size, I64(LINE))
    loop = Repeat(builder, size, 1, zeros(len(places)))
    place, offset = address(builder, weights, (loop.i, I64(LINE))), builder.mul(loop.i, I64(4))
    wide = {
        column: load_as(builder, form, address(builder, place, I64(2 * LANES * column)))
        for column in columns
    }
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


@written(types.void(*[types.int64] * 7, types.float32), "tiles")
def multiply_tile(
    builder: Any, rows: Any, form: Any, x: Any, weights: Any, size: Any, out: Any, width: Any,
    factor: Any,
) -> None:  # fmt: skip
    """The product of 1 to MOST rows with one block.

    Args:
        builder: where to write
        rows: the number of rows
        form: the weights' NumberType
        x: the address of the rows
        weights: that of the block
        size: the number of inputs
        out: the address of the first output
        width: the distance of two rows of outputs
        factor: a factor
    """
    columns, arguments = BLOCK // LANES, (x, weights, size, out, width, factor)

    def tile(count: int, form: int) -> None:
        together = columns if count * columns <= SUMS else columns // 2
        for first in range(0, columns, together):
            sums(builder, count, NumberType(form), range(first, first + together), *arguments)

    def of_format(form: int) -> None:
        choose(builder, rows, MOST, lambda count: tile(count, form))

    choose(builder, form, NumberType.BFLOAT16, of_format)


PARTS = 16  # of a sum over weights that lie row by row, whatever the length of vectors
EACH = PARTS // LANES  # vectors of these
TOGETHER = 4  # outputs, whose weights take as many registers
DOTS = 6 if WIDE else 1  # most rows of x at once


@written(types.void(*[types.int64] * 7, types.float32), "dots")
def multiply_rows(
    builder: Any, rows: Any, x: Any, weights: Any, size: Any, out: Any, width: Any, outputs: Any,
    factor: Any,
) -> None:  # fmt: skip
    """The product of 1 to DOTS rows with outputs whose weights, in bfloat16, lie row by row.

    Args:
        builder: where to write
        rows: the number of rows
        x: the address of the rows
        weights: that of the first output's weights
        size: the number of inputs, a multiple of PARTS
        out: the address of the first output
        width: the distance of two rows of outputs
        outputs: the number of outputs
        factor: a factor
    """

    def some(rows: int, together: int, begin: Any, count: Any) -> None:
        """Write those of a number of outputs from `begin` on, so many at a time."""
        group = Repeat(builder, count, together)
        first = builder.add(begin, group.i)
        into = address(builder, out, (first, I64(4)))
        own = address(builder, weights, (builder.mul(first, size), I64(2)))
        lines = [address(builder, x, (size, I64(4 * row))) for row in range(rows)]
        others = [address(builder, own, (size, I64(2 * other))) for other in range(together)]
        places = [(row, other) for row in range(rows) for other in range(together)]
        ahead = builder.mul(size, I64(2 * together))  # the next outputs' weights
        loop = Repeat(builder, size, PARTS, zeros(len(places) * EACH))
        totals: list[Any] = []
        for part in range(EACH):
            here = builder.add(loop.i, I64(part * LANES))
            begins = [address(builder, other, (here, I64(2))) for other in others]
            wide = [load_as(builder, NumberType.BFLOAT16, place) for place in begins]
            inputs = [load(builder, address(builder, line, (here, I64(4)))) for line in lines]
            if not part:
                for place in begins:
                    fetch(builder, builder.add(place, ahead))
            totals += [
                multiply_add(builder, wide[other], inputs[row], loop.values[number * EACH + part])
                for number, (row, other) in enumerate(places)
            ]
        every = range(len(places))
        loop.close([totals[part * len(places) + n] for n in every for part in range(EACH)])
        for number, (row, other) in enumerate(places):
            total = loop.values[number * EACH]
            for more in loop.values[number * EACH + 1 : (number + 1) * EACH]:
                total = builder.fadd(total, more)
            step = LANES // 2
            while step:
                turned = [(lane + step) % LANES for lane in range(LANES)]
                total = builder.fadd(total, shuffled(builder, total, total, turned))
                step //= 2
            target = address(builder, into, (width, I64(4 * row)), I64(4 * other))
            store(builder, builder.fmul(builder.extract_element(total, I32(0)), factor), target)
        group.close()

    whole = builder.and_(outputs, I64(-TOGETHER))

    def of(rows: int) -> None:
        some(rows, TOGETHER, I64(0), whole)
        some(rows, 1, whole, builder.sub(outputs, whole))

    choose(builder, rows, DOTS, of)


def pointing_to(kind: Any, place: Any) -> Any:
    """A function of numba that turns an address into a pointer to numbers of a type."""

    @written(types.CPointer(kind)(types.int64))
    def pointer(builder: Any, address: Any) -> Any:
        return builder.inttoptr(address, place.as_pointer())

    return pointer


pointer, pointer_to_integers = pointing_to(types.float32, F32), pointing_to(types.int64, I64)
pointer_to_halves = pointing_to(types.uint16, I16)  # the bits of bfloat16 numbers
pointer_to_bytes = pointing_to(types.uint8, ir.IntType(8))


@written(types.float32(types.uint16))
def real(builder: Any, bits: Any) -> Any:
    """The number whose bits in bfloat16 these are."""
    return as_real(builder, bits, I32, F32)


@written(types.uint16(types.float32))
def half(builder: Any, number: Any) -> Any:
    """The bits in bfloat16 of a number that it holds."""
    return builder.trunc(builder.lshr(builder.bitcast(number, I32), I32(16)), I16)


@written(types.float32(types.float32))
def rounded(builder: Any, number: Any) -> Any:
    """The bfloat16 number that is nearest to a float32 number, of two the even one."""
    bits = builder.bitcast(number, I32)
    odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    bits = builder.add(builder.add(bits, I32(0x7FFF)), odd)
    value = builder.bitcast(builder.and_(bits, I32(-0x10000)), F32)
    # What is no number would become one.
    return builder.select(builder.fcmp_unordered("uno", number, number), F32(math.nan), value)


@written(types.float32(types.int32))
def power_of_two(builder: Any, bits: Any) -> Any:
    """The float32 number whose exponent field these bits are."""
    return builder.bitcast(builder.shl(bits, I32(23)), F32)


@written(types.int32(types.float32))
def bits_of(builder: Any, number: Any) -> Any:
    return builder.bitcast(number, I32)


def word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I64.as_pointer())


@written(types.int64(types.int64))
def look(builder: Any, address: Any) -> Any:
    """The word at an address, and then whatever was written before it."""
    return builder.load_atomic(word(builder, address), "seq_cst", 8)


def changing(operation: str) -> Any:
    """A function of an address and a number that changes the word there by this operation.

    It does so after whatever was written before, and before whatever comes.
    """

    @written(types.void(types.int64, types.int64))
    def run(builder: Any, address: Any, number: Any) -> None:
        builder.atomic_rmw(operation, word(builder, address), number, "seq_cst")

    return run


put, increase = changing("xchg"), changing("add")


@written(types.boolean(types.int64, types.int64, types.int64))
def swap(builder: Any, address: Any, before: Any, after: Any) -> Any:
    """Write `after` if the word is `before`; return whether it was."""
    pair = builder.cmpxchg(word(builder, address), before, after, "seq_cst", "seq_cst")
    return builder.extract_value(pair, 1)


@written(types.void())
def pause(builder: Any) -> None:
    """Let a moment pass in a loop that waits, for the sake of whoever shares the core."""
    if binding.get_process_triple().startswith("x86_64"):
        called(builder, "llvm.x86.sse2.pause", ir.VoidType())


def in_blocks(weight: torch.Tensor) -> torch.Tensor:
    """Lay weights (out, in) in half of the size out as tiles want them, with zeros up to a block.

    Memory of torch begins at a multiple of 64 bytes, which is a line of the cache and of a block.
    """
    width, size = weight.shape
    whole = torch.nn.functional.pad(weight, (0, 0, 0, -width % BLOCK)) if width % BLOCK else weight
    return whole.view(-1, BLOCK, size).transpose(1, 2).contiguous()


@written(types.int64(types.int64, types.float32, types.float32))
def between(builder: Any, begin: Any, low: Any, high: Any) -> Any:
    """Which of the 64 float32 numbers at an address are not below `low`, and below `high`: bits."""
    low, high, bits = splat(builder, low), splat(builder, high), I64(0)
    for place in range(0, 64, LANES):
        numbers = load(builder, address(builder, begin, I64(4 * place)))
        inside = builder.and_(
            builder.fcmp_ordered(">=", numbers, low), builder.fcmp_ordered("<", numbers, high)
        )
        some = builder.zext(builder.bitcast(inside, ir.IntType(LANES)), I64)
        bits = builder.or_(bits, builder.shl(some, I64(place)))
    return bits


@written(types.int64(types.int64))
def lowest(builder: Any, bits: Any) -> Any:
    return builder.cttz(bits, ir.IntType(1)(1))
