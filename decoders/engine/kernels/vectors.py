"""Vectors of float32 numbers, loops and functions, written for LLVM, which numba compiles."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir

WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8  # numbers of a vector
I32, I64, F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(F32, LANES)


class Loop:
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
    """A vector of one number."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, I32(0))
    return shuffled(builder, first, first, [0] * LANES)


def shuffled(builder: Any, a: Any, b: Any, lanes: Sequence[int]) -> Any:
    """The vector of these lanes of two vectors, those of the second counted after the first's."""
    kind = ir.VectorType(I32, len(lanes))
    return builder.shuffle_vector(a, b, ir.Constant(kind, [I32(lane) for lane in lanes]))


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of vectors, rounded once."""
    name, kind = f"llvm.fma.v{LANES}f32", ir.FunctionType(VECTOR, [VECTOR] * 3)
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, [a, b, c])


def address(builder: Any, begin: Any, *terms: Any) -> Any:
    """An address so many bytes after another; each term is a number or a product of two."""
    for term in terms:
        term = builder.mul(*term) if isinstance(term, tuple) else term
        begin = builder.add(begin, term)
    return begin


def load(builder: Any, address: Any, kind: Any = VECTOR, align: int = 4) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


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


def function(
    module: Any, name: str, result: Any, arguments: Sequence[Any], write: Callable[..., Any]
) -> Any:
    """A function of a module, which each part of a program brings along and one of them keeps.

    Args:
        module: the module
        name: the function's name
        result: the type of its result
        arguments: those of its arguments
        write: writes its code, given a builder and the arguments; returns the result or None
    """
    name = f"decoders.{name}.{LANES}"
    if name in module.globals:
        return module.globals[name]
    made = ir.Function(module, ir.FunctionType(result, arguments), name)
    made.linkage = "linkonce_odr"
    made.attributes.add("noinline")  # it would be compiled once for each call
    builder = ir.IRBuilder(made.append_basic_block("entry"))
    value = write(builder, *made.args)
    builder.ret_void() if value is None else builder.ret(value)
    return made
