"""A recording as instructions for the kernels (Lowering), and where their values lie (Rows)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_map

from decoders.engine.attention.interface import attend_layer, attend_parts
from decoders.engine.kernels.codes import Code
from decoders.engine.lowering import patterns
from decoders.engine.lowering.patterns import Call, aten, matched
from decoders.engine.recorder import CannotRecord, Constant, Size, Step, Value
from decoders.engine.weights.linear import Halves, PassLinear

TOKENS, WANTED = Size(1, 0, 0), Size(0, 1, 0)


@dataclass(frozen=True)
class Rows:
    """Float32 numbers of each token, one token after another.

    Attributes:
        number: the number of the result that holds them
        shape: their shape as torch sees it, with TOKENS or WANTED for the number of rows
    """

    number: int
    shape: tuple[Any, ...]

    @property
    def width(self) -> int:
        """How many numbers each token has."""
        return prod(size for size in self.shape if not isinstance(size, Size))

    @property
    def count(self) -> Size:
        return next(size for size in self.shape if isinstance(size, Size))

    @property
    def by_heads(self) -> bool:
        """Whether the shape is (1, heads, tokens, size); in memory, tokens come first."""
        return len(self.shape) == 4 and isinstance(self.shape[2], Size)

    def viewed(self, name: str, arguments: Sequence[Any]) -> "Rows | None":
        """The rows after an operator that moves no number; None if it does.

        Args:
            name: the operator's name
            arguments: its arguments after the rows
        """
        shape: tuple[Any, ...] | None = None
        if name in ("view", "reshape", "_unsafe_view") and not self.by_heads:
            shape = whole(arguments[0], self.width)
        elif name == "transpose" and [*map(int, arguments)] == [1, 2] and len(self.shape) == 4:
            shape = (self.shape[0], self.shape[2], self.shape[1], self.shape[3])
        elif name in ("alias", "detach", "contiguous", "clone") and not self.by_heads:
            shape = self.shape
        elif name == "select" and list(arguments) == [0, 0] and self.shape[0] == 1:
            shape = self.shape[1:]
        elif name == "slice" and self._all(*arguments):
            shape = self.shape
        if shape is None or [s for s in shape if isinstance(s, Size)] != [self.count]:
            return None
        # Only heads may stand before the tokens.
        fits = shape[: shape.index(self.count)] in ((), (1,)) or Rows(0, shape).by_heads
        return Rows(self.number, shape) if fits else None

    def _all(self, axis: int = 0, begin: Any = None, end: Any = None, step: int = 1) -> bool:
        size = self.shape[axis]
        last = size.rest if isinstance(size, Size) else size
        return (
            not begin and step == 1 and (end is None or (not isinstance(end, Size) and end >= last))
        ) and (not isinstance(size, Size) or end is None or end == 2**63 - 1)


def whole(shape: Sequence[Any], width: int) -> tuple[Any, ...]:
    """A shape without -1, given how many numbers each token has."""
    known = prod(size for size in shape if not isinstance(size, Size) and size != -1)
    return tuple(width // known if size == -1 else size for size in shape)


@dataclass
class Instruction:
    """An instruction whose operands are numbers of results.

    Attributes:
        code: see `decoders.engine.kernels.program.Code`
        operands: the results that it reads, up to three
        result: the one that it makes
        integers: its whole numbers
        reals: its real numbers
        second: a second result, or None
    """

    code: int
    operands: tuple[int, ...]
    result: int
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    second: int | None = None

    @property
    def touched(self) -> tuple[int, ...]:
        more = () if self.second is None else (self.second,)
        return *self.operands, self.result, *more


@dataclass
class Layout:
    """Where results lie: a place for each, and the numbers that each token needs for all."""

    places: dict[int, int] = field(default_factory=dict)
    width: int = 0


def placed(
    instructions: Sequence[Instruction], widths: Sequence[int], answers: Sequence[int]
) -> Layout:
    """Give each result a place, which another takes after the last use.

    Args:
        instructions: the instructions
        widths: the numbers that each token has in each result
        answers: the results that a pass returns; they lie outside, at -1, -2, ..
    """
    layout = Layout({number: -1 - i for i, number in enumerate(answers)})
    last = {number: i for i, one in enumerate(instructions) for number in one.touched}
    free: dict[int, list[int]] = {}
    for i, one in enumerate(instructions):
        for number in one.touched:
            if number not in layout.places:
                width = widths[number]
                if free.get(width):
                    layout.places[number] = free[width].pop()
                else:
                    layout.places[number], layout.width = layout.width, layout.width + width
        for number in set(one.touched):
            if last[number] == i and number not in answers:
                free.setdefault(widths[number], []).append(layout.places[number])
    return layout


class CannotLower(CannotRecord):
    """A recording does something that the kernels do not."""


class Lowering:
    """Reads a recording step by step and writes instructions.

    An operator that neither ends a pattern nor is a view is left out; if anything needs its result
    on its own, that cannot be lowered.

    Args:
        steps: the recording
        answers: what it returns
        given: further inputs of the pass by name, each with how many numbers a token has in it

    Attributes:
        given: the results that stand for these inputs
        instructions: the instructions
        widths: the numbers that each token has in each result
        answers: the rows that the pass returns
        kept: the weights that instructions point to

    Raises:
        CannotLower: if the kernels do not do all of it
    """

    def __init__(self, steps: Sequence[Step], answers: Sequence[Value], given: Mapping[str, int]):
        self.instructions: list[Instruction] = []
        self.widths: list[int] = []
        self.kept: list[Any] = []
        self._rows: dict[Value, Rows] = {}
        self._makers: dict[Value, Step] = {}
        self._same: dict[Value, Any] = {}
        self._angles: dict[tuple, tuple[int, int]] = {}
        self.given: list[int] = []
        for name, width in given.items():
            self._rows[Value(name)] = Rows(len(self.widths), (1, TOKENS, width))
            self.given.append(len(self.widths))
            self.widths.append(width)
        for step in steps:
            self._read(step)
        self.answers = [self.rows_of(self._same.get(answer, answer)) for answer in answers]

    def rows_of(self, value: Any) -> Rows:
        if value not in self._rows:
            step = self._makers.get(value)
            what = getattr(step.function, "__name__", step.function) if step else value
            raise CannotLower(f"the kernels do not know {what}")
        return self._rows[value]

    def _read(self, step: Step) -> None:
        def renamed(part: Any) -> Any:
            return self._same.get(part, part) if isinstance(part, Value) else part

        arguments = tree_map(renamed, step.arguments)
        step = step._replace(arguments=arguments, options=tree_map(renamed, step.options))
        result = step.results[0] if step.single else None
        if not isinstance(step.function, torch._ops.OpOverload):
            if result is None:
                raise CannotLower("the kernels have one result each")
            self._rows[result] = self._called(step)
            return
        if result is None:
            return
        self._makers[result] = step
        if idle(step):
            self._same[result] = step.arguments[0]
            return
        name = step.function.overloadpacket.__name__
        first: Any = step.arguments[0] if step.arguments else None
        view = isinstance(first, Value) and not step.options and first in self._rows
        if view and (rows := self._rows[first].viewed(name, step.arguments[1:])):
            self._rows[result] = rows
            return
        if (rows := next(self._found(result), None)) is not None:
            self._rows[result] = rows

    def _made(
        self, code: Code, shape: tuple, *operands: Rows, integers: tuple = (), reals: tuple = ()
    ) -> Rows:
        rows = Rows(len(self.widths), shape)
        self.widths.append(rows.width)
        self.instructions.append(
            Instruction(code, tuple(o.number for o in operands), rows.number, integers, reals)
        )
        return rows

    def _address(self, weight: Any, *shape: int) -> int:
        """The address of a float32 weight of this shape."""
        tensor = weight.value if isinstance(weight, Constant) else None
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
            raise CannotLower("a weight is not in float32")
        if (shape and tuple(tensor.shape) != shape) or not tensor.is_contiguous():
            raise CannotLower("a weight has another shape")
        self.kept.append(tensor)
        return tensor.data_ptr()

    def _called(self, step: Step) -> Rows:
        """A step that is a function of this engine: a product or attention."""
        if step.function in (attend_layer, attend_parts):
            return self._attention(*step.arguments)
        layer = getattr(step.function, "__self__", None)
        if not isinstance(layer, PassLinear):
            raise CannotLower("the kernels do not know a function")
        copy = layer.copied() if layer.copies else None
        x = self.rows_of(step.arguments[0])
        if not isinstance(copy, Halves) or layer.weight.dtype != torch.float32 or x.by_heads:
            raise CannotLower("float16 does not hold its weights")
        if x.shape[-1] != layer.in_features:
            raise CannotLower("a product is of several rows a token")
        weights, bias = copy.places
        self.kept.append(copy)
        return self._made(
            Code.PRODUCT,
            (*x.shape[:-1], layer.out_features),
            x,
            integers=(weights, layer.in_features, layer.out_features, bias, x.count == WANTED),
            reals=(copy.factor,),
        )

    def _attention(
        self, q: Any, k: Any, v: Any, packing: Any, layer: Any, scale: Any, softcap: Any, sinks: Any
    ) -> Rows:
        q, k, v = map(self.rows_of, (q, k, v))
        if not (q.by_heads and k.by_heads and v.by_heads and packing == Value("packing")):
            raise CannotLower("attention has other shapes")
        heads, size, wide = q.shape[1], q.shape[3], v.shape[3]
        sunk = 0 if sinks is None else self._address(sinks, heads)
        return self._made(
            Code.ATTEND,
            (1, TOKENS, heads, wide),
            q,
            k,
            v,
            integers=(layer, heads, heads // k.shape[1], size, wide, sunk),
            reals=(scale, softcap),
        )

    def _found(self, result: Value) -> Iterator[Rows]:
        """Yield the rows of a result that ends a pattern of operators."""

        def fits(pattern: Call) -> Any:
            found = matched(pattern, result, self._makers)
            known = {key: self._rows.get(v) for key, v in (found or {}).items() if key in "xy"}
            return {**found, **known} if found is not None and all(known.values()) else None

        if found := fits(patterns.LOOKED_UP) or fits(patterns.LOOKED_UP_PADDED):
            table = self._address(found["weight"])
            width = found["weight"].value.shape[1]
            yield self._made(Code.EMBED, (1, TOKENS, width), integers=(table, width))
        if (found := fits(patterns.NORM)) and isinstance(found["eps"], float):
            x = found["x"]
            if not x.by_heads:
                size, count = x.shape[-1], x.width // x.shape[-1]
                integers = self._address(found["weight"], size), size, count
                if x.count == TOKENS:
                    yield self._made(
                        Code.NORM, x.shape, x, integers=integers, reals=(found["eps"],)
                    )
        if (found := fits(patterns.ROTATION)) and (turns := self._turns(found)):
            x = found["x"]
            rows = self._made(Code.ROTATE, x.shape, x, integers=(x.shape[1], x.shape[3]))
            self.instructions[-1].operands = x.number, *turns
            yield rows
        if (found := fits(patterns.GATED)) and alike(found):
            yield self._made(
                Code.GATED, found["x"].shape, found["x"], found["y"], integers=(found["x"].width,)
            )
        if (found := fits(patterns.SUM)) and alike(found):
            yield self._made(
                Code.ADD, found["x"].shape, found["x"], found["y"], integers=(found["x"].width,)
            )
        if (found := fits(patterns.WANTED)) and found["x"].shape[:2] == (1, TOKENS):
            x = found["x"]
            yield self._made(Code.SELECT, (1, WANTED, *x.shape[2:]), x, integers=(x.width,))

    def _turns(self, found: dict[str, Any]) -> tuple[int, int] | None:
        """The results that hold the cosines and sines of a rotation; None if it is another kind."""
        x, half = found["x"], found["half"]
        if not x.by_heads or found["axis"] != 3 or x.shape[3] != 2 * half:
            return None
        parts: list[Any] = [
            next(filter(None, (matched(p, found[name], self._makers) for p in angles)), None)
            for name, angles in (
                ("cos", patterns.angles(aten.cos.default)),
                ("sin", patterns.angles(aten.sin.default)),
            )
        ]
        if None in parts or parts[0]["weight"] != parts[1]["weight"]:
            return None
        scales = tuple(float(part.get("scale", 1.0)) for part in parts)
        speed = self._address(parts[0]["weight"], half)
        if (speed, scales) not in self._angles:
            cos = self._made(Code.ANGLES, (1, TOKENS, half), integers=(speed, half), reals=scales)
            sin = len(self.widths)
            self.widths.append(half)
            self.instructions[-1].second = sin
            self._angles[speed, scales] = cos.number, sin
        return self._angles[speed, scales]


def alike(found: dict[str, Any]) -> bool:
    return found["x"].shape == found["y"].shape and found["x"].count == TOKENS


def idle(step: Step) -> bool:
    """Whether a step gives what it gets, or positions in float32."""
    operator: Any = step.function
    name = operator.overloadpacket.__name__
    if name in ("alias", "detach"):
        return True
    asked = [*step.arguments[1:], *step.options.values()]
    known = torch.float32, torch.device("cpu")
    return name in ("to", "_to_copy") and all(each in known for each in asked)
