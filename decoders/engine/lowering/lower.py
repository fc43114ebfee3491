"""A recording as instructions over tensors (Lowering), and what their values are (Operand)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

from decoders.engine import recorder
from decoders.engine.attention.interface import attend_layer
from decoders.engine.kernels import Code
from decoders.engine.recorder import CannotRecord, Constant, Operation, Size, Value, aten, matched
from decoders.engine.weights import PassLinear

TOKENS, WANTED = Size(1, 0, 0), Size(0, 1, 0)
CONSTANT = 2**20  # numbers of weights from which a pass makes others, at most


@dataclass(frozen=True)
class Operand:
    """Numbers of each token in the model's dtype, one token after another.

    Attributes:
        number: the number of the result that holds them
        shape: their shape as torch sees it, with TOKENS or WANTED for the number of rows
    """

    number: int
    shape: tuple[Any, ...]

    @property
    def width(self) -> int:
        return prod(size for size in self.shape if not isinstance(size, Size))

    @property
    def count(self) -> Size:
        return next(size for size in self.shape if isinstance(size, Size))

    @property
    def by_heads(self) -> bool:
        """Whether the shape is (1, heads, tokens, size); in memory, tokens come first."""
        return len(self.shape) == 4 and isinstance(self.shape[2], Size)

    def viewed(self, name: str, arguments: Sequence[Any]) -> "Operand | None":
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
        fits = shape[: shape.index(self.count)] in ((), (1,)) or Operand(0, shape).by_heads
        return Operand(self.number, shape) if fits else None

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


class Slice(NamedTuple):
    """Some outputs of a linear layer: those from `begin` to `end`."""

    layer: PassLinear
    begin: int
    end: int


@dataclass
class Instruction:
    """An instruction whose operands are numbers of results.

    Attributes:
        code: see `decoders.engine.kernels.Code`
        operands: the results that it reads, up to three
        result: the one that it makes
        weights: its weights: of a PRODUCT a Slice; of EMBED the table, and the factor of its rows
            or None; of NORM and ANGLES a vector; of ATTEND the sinks or None
        integers: its whole numbers, as Code has them
        reals: its real numbers
        second: a second result, or None
        how: of GATED, the activation; of NORM, ROTATE and ANGLES, "late" if numbers stay in float32
            until the end (NORM, ROTATE) or until they are used (ANGLES), else ""
    """

    code: Code
    operands: tuple[int, ...]
    result: int
    weights: tuple[Any, ...] = ()
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    second: int | None = None
    how: str = ""

    @property
    def touched(self) -> tuple[int, ...]:
        return *self.operands, *self.results

    @property
    def results(self) -> tuple[int, ...]:
        return (self.result,) if self.second is None else (self.result, self.second)


def placed(
    instructions: Sequence[Instruction], widths: Sequence[int], answers: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Give each result a place, which another takes after the last use.

    Args:
        instructions: the instructions
        widths: the numbers that each token has in each result
        answers: the results that a pass returns; they lie outside, at -1, -2, ..

    Returns:
        the places, and the numbers that each token needs for all results
    """
    places, end = {number: -1 - i for i, number in enumerate(answers)}, 0
    last = {number: i for i, one in enumerate(instructions) for number in one.touched}
    free: dict[int, list[int]] = {}
    for i, one in enumerate(instructions):
        for number in one.touched:
            if number not in places:
                width = widths[number]
                if free.get(width):
                    places[number] = free[width].pop()
                else:
                    places[number], end = end, end + width
        for number in set(one.touched):
            if last[number] == i and number not in answers:
                free.setdefault(widths[number], []).append(places[number])
    return places, end


class CannotLower(CannotRecord):
    """A recording does something that no instruction does."""


class Lowering:
    """Reads a recording step by step and writes instructions.

    An operator that neither ends a pattern nor is a view is left out; if anything needs its result
    on its own, that cannot be lowered.

    Args:
        steps: the recording
        answers: what it returns
        given: further inputs of the pass by name, each with how many numbers a token has in it
        dtype: of the model
        device: of the model

    Attributes:
        given: the results that stand for these inputs
        instructions: the instructions
        widths: the numbers that each token has in each result
        answers: the rows that the pass returns

    Raises:
        CannotLower: if instructions do not do all of it
    """

    def __init__(
        self,
        steps: Sequence[Operation],
        answers: Sequence[Value],
        given: Mapping[str, int],
        dtype: torch.dtype,
        device: torch.device,
    ):
        self.instructions: list[Instruction] = []
        self.widths: list[int] = []
        self.dtype, self.device = dtype, device
        self._rows: dict[Value, Operand] = {}
        self._makers: dict[Value, Operation] = {}
        self._same: dict[Value, Any] = {}
        self._casts: dict[Value, torch.dtype] = {}
        self._angles: dict[tuple, tuple[int, int]] = {}
        self._products: dict[int, Instruction] = {}
        self.given: list[int] = []
        for name, width in given.items():
            self._rows[Value(name)] = Operand(len(self.widths), (1, TOKENS, width))
            self.given.append(len(self.widths))
            self.widths.append(width)
        for step in steps:
            self._read(step)
        self.answers = [self.rows_of(self._same.get(answer, answer)) for answer in answers]
        self.instructions = in_use(self.instructions, [rows.number for rows in self.answers])

    def rows_of(self, value: Any) -> Operand:
        if value not in self._rows:
            step = self._makers.get(value)
            what = getattr(step.function, "__name__", step.function) if step else value
            raise CannotLower(f"no instruction does {what}")
        return self._rows[value]

    def _read(self, step: Operation) -> None:
        def renamed(part: Any) -> Any:
            return self._same.get(part, part) if isinstance(part, Value) else part

        arguments = tree_map(renamed, step.arguments)
        step = step._replace(arguments=arguments, options=tree_map(renamed, step.options))
        result = step.results[0] if len(step.results) == 1 else None
        if not isinstance(step.function, torch._ops.OpOverload):
            assert result is not None  # a product or attention has one
            self._rows[result] = self._called(step)
            return
        first: Any = step.arguments[0] if step.arguments else None
        known = self._rows.get(first) if isinstance(first, Value) else None
        name = step.function.overloadpacket.__name__
        if result is None:
            if known is not None and name == "chunk":
                self._chunks(known, step)
            return
        if (value := constant(step.function, step)) is not None:
            self._same[result] = value
            return
        self._makers[result] = step
        if self._idle(name, step, result):
            self._same[result] = first
            return
        if known is not None and not step.options:
            rows = known.viewed(name, step.arguments[1:]) or self._sliced(known, step)
            if rows is not None:
                self._rows[result] = rows
                return
        if (rows := next(self._found(result), None)) is not None:
            self._rows[result] = rows

    def _idle(self, name: str, step: Operation, result: Value) -> bool:
        """Whether a step of this operator gives what it gets, or positions in float32."""
        if name in ("alias", "detach"):
            return True
        if name not in ("type_as", "to", "_to_copy"):
            return False
        options = [
            self.dtype if isinstance(each, Value) and each in self._rows else each
            for each in (*step.arguments[1:], *step.options.values())
        ]
        types = [each for each in options if isinstance(each, torch.dtype)]
        others = [each for each in options if not isinstance(each, torch.dtype)]
        if not all(each in (None, False, self.device) for each in others):
            return False
        if not types:  # to the device where it is
            return True
        self._casts[result] = into = types[0]
        there = self.dtype if step.arguments[0] in self._rows else None
        return into == there or into == self.dtype == torch.float32

    def _made(
        self,
        code: Code,
        shape: tuple,
        *operands: Operand,
        weights: tuple = (),
        integers: tuple = (),
        reals: tuple = (),
        how: str = "",
    ) -> Operand:
        rows = Operand(len(self.widths), shape)
        self.widths.append(rows.width)
        numbers = tuple(o.number for o in operands)
        self.instructions.append(
            Instruction(code, numbers, rows.number, weights, integers, reals, how=how)
        )
        return rows

    def _weight(self, weight: Any, *shape: int) -> torch.Tensor:
        tensor = weight.value if isinstance(weight, Constant) else None
        if (
            not isinstance(tensor, torch.Tensor)
            or not tensor.is_floating_point()
            or not tensor.is_contiguous()
            or (shape and tuple(tensor.shape) != shape)
        ):
            raise CannotLower("a weight has another shape or no real numbers")
        return tensor

    def _called(self, step: Operation) -> Operand:
        """A step that is a function of this engine: a product or attention."""
        if step.function is attend_layer:
            return self._attention(*step.arguments)
        layer: PassLinear = step.function.__self__
        x = self.rows_of(step.arguments[0])
        if x.by_heads or x.shape[-1] != layer.in_features or x.width != layer.in_features:
            raise CannotLower("a product is of several rows a token")
        return self._product(x, Slice(layer, 0, layer.out_features))

    def _product(self, x: Operand, part: Slice) -> Operand:
        width = part.end - part.begin
        rows = self._made(
            Code.PRODUCT,
            (*x.shape[:-1], width),
            x,
            weights=(part,),
            integers=(x.width, width, x.count == WANTED),
        )
        self._products[rows.number] = self.instructions[-1]
        return rows

    def _columns(self, rows: Operand, begin: int, end: int) -> Operand | None:
        """Some numbers of each row of a product, which are a product with part of its weights."""
        whole = self._products.get(rows.number)
        if whole is None or rows.shape[-1] != rows.width or not 0 <= begin < end <= rows.width:
            return None
        (part,) = whole.weights
        x = Operand(whole.operands[0], (*rows.shape[:-1], part.layer.in_features))
        return self._product(x, Slice(part.layer, part.begin + begin, part.begin + end))

    def _sliced(self, rows: Operand, step: Operation) -> Operand | None:
        if step.function != aten.slice.Tensor or len(step.arguments) != 4:
            return None
        _, axis, begin, end = step.arguments
        if axis not in (-1, len(rows.shape) - 1) or Size in map(type, (begin, end)):
            return None
        return self._columns(rows, begin or 0, min(end, rows.shape[-1]))

    def _chunks(self, rows: Operand, step: Operation) -> None:
        _, count, axis = (*step.arguments, 0)[:3]
        if axis not in (-1, len(rows.shape) - 1) or rows.width % count:
            return
        size = rows.width // count
        for i, result in enumerate(step.results):
            rows_of_chunk = self._columns(rows, i * size, (i + 1) * size)
            if result is not None and rows_of_chunk is not None:
                self._rows[result] = rows_of_chunk

    def _attention(
        self, q: Any, k: Any, v: Any, packing: Any, layer: Any, scale: Any, softcap: Any, sinks: Any
    ) -> Operand:
        q, k, v = map(self.rows_of, (q, k, v))
        if not (q.by_heads and k.by_heads and v.by_heads and packing == Value("packing")):
            raise CannotLower("attention has other shapes")
        heads, size, wide = q.shape[1], q.shape[3], v.shape[3]
        return self._made(
            Code.ATTEND,
            (1, TOKENS, heads, wide),
            q,
            k,
            v,
            weights=(None if sinks is None else self._weight(sinks, heads),),
            integers=(layer, heads, heads // k.shape[1], size, wide),
            reals=(scale, softcap),
        )

    def _matched(self, pattern: Any, item: Any) -> dict[str, Any] | None:
        return matched(pattern, item, self._makers, self._casts, self.dtype)

    def _found(self, result: Value) -> Iterator[Operand]:
        """Yield the rows of a result that ends a pattern of operators."""

        def fits(pattern: Any) -> Any:
            match = self._matched(pattern, result)
            known = {key: self._rows.get(v) for key, v in (match or {}).items() if key in "xy"}
            return {**match, **known} if match is not None and all(known.values()) else None

        for pattern in recorder.EMBEDDINGS:
            if match := fits(pattern):
                table, factor = self._weight(match["weight"]), match.get("scale")
                factor = factor.value if isinstance(factor, Constant) else factor
                single = torch.is_tensor(factor) and factor.numel() == 1
                if single or factor is None or isinstance(factor, float):
                    width = table.shape[1]
                    yield self._made(
                        Code.EMBED, (1, TOKENS, width), weights=(table, factor), integers=(width,)
                    )
        for pattern in recorder.NORMS:
            if (match := fits(pattern)) and isinstance(match["eps"], float):
                x = match["x"]
                if not x.by_heads and x.count == TOKENS:
                    size, count = x.shape[-1], x.width // x.shape[-1]
                    yield self._made(
                        Code.NORM,
                        x.shape,
                        x,
                        weights=(self._weight(match["weight"], size),),
                        integers=(size, count),
                        reals=(match["eps"],),
                        how="" if pattern is recorder.NORM else "late",
                    )
        for rounded in (False, True):
            turned: Any = recorder.ROTATION if rounded else recorder.Narrow(recorder.ROTATION)
            if (match := fits(turned)) and (turns := self._turns(match, rounded)):
                x = match["x"]
                rows = self._made(
                    Code.ROTATE,
                    x.shape,
                    x,
                    integers=(x.shape[1], x.shape[3]),
                    how="" if rounded else "late",
                )
                self.instructions[-1].operands = x.number, *turns
                yield rows
        match = fits(recorder.ROTATION_AND_REST)
        if (
            match
            and match["x"].by_heads
            and match["axis"] == 3
            and match["half"] == (match["y"].shape[3]) == match["x"].shape[3]
        ):
            yield match["x"]
        for how, gates in recorder.GATES.items():
            if (match := fits(gates[0]) or fits(gates[1])) and alike(match):
                x, y = match["x"], match["y"]
                yield self._made(Code.GATED, x.shape, x, y, integers=(x.width,), how=how)
        if (match := fits(recorder.SUM)) and alike(match):
            yield self._made(
                Code.ADD, match["x"].shape, match["x"], match["y"], integers=(match["x"].width,)
            )
        if (match := fits(recorder.CAP)) and isinstance(match["scale"], float):
            x = match["x"]
            yield self._made(
                Code.CAP,
                x.shape,
                x,
                integers=(x.width, x.count == WANTED),
                reals=(match["scale"],),
            )
        if (match := fits(recorder.WANTED)) and match["x"].shape[:2] == (1, TOKENS):
            x = match["x"]
            yield self._made(Code.SELECT, (1, WANTED, *x.shape[2:]), x, integers=(x.width,))

    def _turns(self, match: dict[str, Any], rounded: bool) -> tuple[int, int] | None:
        """The results that hold the cosines and sines of a rotation; None if it is another kind."""
        x, half = match["x"], match["half"]
        if not x.by_heads or match["axis"] != 3 or x.shape[3] != 2 * half:
            return None
        parts: list[Any] = [
            next(
                filter(
                    None,
                    (self._matched(p, match[name]) for p, each in angles if each == rounded),
                ),
                None,
            )
            for name, angles in (
                ("cos", recorder.angles(aten.cos.default)),
                ("sin", recorder.angles(aten.sin.default)),
            )
        ]
        if None in parts or parts[0]["weight"] != parts[1]["weight"]:
            return None
        scales = tuple(float(part.get("scale", 1.0)) for part in parts)
        speed = self._weight(parts[0]["weight"]).flatten()  # a column, if it is multiplied
        if len(speed) != half:
            return None
        key = speed.data_ptr(), scales, rounded
        if key not in self._angles:
            cos = self._made(
                Code.ANGLES,
                (1, TOKENS, half),
                weights=(speed,),
                integers=(half,),
                reals=scales,
                how="" if rounded else "late",
            )
            sin = len(self.widths)
            self.widths.append(half)
            self.instructions[-1].second = sin
            self._angles[key] = cos.number, sin
        return self._angles[key]


def alike(match: dict[str, Any]) -> bool:
    return match["x"].shape == match["y"].shape and match["x"].count == TOKENS


def constant(function: torch._ops.OpOverload, step: Operation) -> Constant | None:
    """The result of an operator that reads weights and plain numbers alone, and none anew."""
    leaves = tree_leaves((step.arguments, step.options))
    given = [leaf for leaf in leaves if isinstance(leaf, Constant)]
    if (
        not given
        or function._schema.is_mutable
        or any(isinstance(x, (Value, Size)) for x in leaves)
    ):
        return None
    if sum(leaf.value.numel() for leaf in given) > CONSTANT:
        return None

    def value(leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, Constant) else leaf

    return Constant(function(*tree_map(value, step.arguments), **tree_map(value, step.options)))


def in_use(instructions: Sequence[Instruction], answers: Sequence[int]) -> list[Instruction]:
    """The instructions that answers need; attention also writes rows of the cache."""
    needed, steps = set(answers), []
    for one in reversed(instructions):
        if one.code == Code.ATTEND or needed.intersection(one.results):
            needed.update(one.operands)
            steps.append(one)
    return steps[::-1]
