"""Patterns of recorded operators: what a norm, a rotation or a gate looks like in a recording."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from decoders.engine.recorder import Operation, Value

aten = torch.ops.aten
END = 2**63 - 1  # the end of a slice without one


@dataclass(frozen=True)
class Hole:
    """In a pattern: any value, the same wherever this name stands."""

    name: str


@dataclass(frozen=True)
class Operator:
    """In a pattern: the result of this operator with these arguments."""

    function: torch._ops.OpOverload
    arguments: tuple
    options: tuple = ()


@dataclass(frozen=True)
class Wide:
    """In a pattern: this in float32."""

    of: Any


@dataclass(frozen=True)
class Narrow:
    """In a pattern: this rounded to the model's dtype."""

    of: Any


def call(function: torch._ops.OpOverload, *arguments: Any, **options: Any) -> Operator:
    return Operator(function, arguments, tuple(options.items()))


X, Y, COS, SIN, HALF, AXIS, WEIGHT, EPS, SCALE, IDS = map(
    Hole, ("x", "y", "cos", "sin", "half", "axis", "weight", "eps", "scale", "ids")
)
MEAN_SQUARE = call(aten.mean.dim, call(aten.pow.Tensor_Scalar, Wide(X), 2), [-1], True)
LENGTHS = call(aten.rsqrt.default, call(aten.add.Tensor, MEAN_SQUARE, EPS))
UNIT = call(aten.mul.Tensor, Wide(X), LENGTHS)
# Llama rounds before the weight, OLMo 2 and Gemma after it.
NORM = call(aten.mul.Tensor, WEIGHT, Narrow(UNIT))
NORMS_ROUNDED_LAST = (
    Narrow(call(aten.mul.Tensor, WEIGHT, UNIT)),
    Narrow(call(aten.mul.Tensor, UNIT, WEIGHT)),
)
SECOND = call(aten.neg.default, call(aten.slice.Tensor, X, AXIS, HALF, END))
TURNED = call(aten.cat.default, [SECOND, call(aten.slice.Tensor, X, AXIS, 0, HALF)], -1)
ROTATION = call(aten.add.Tensor, call(aten.mul.Tensor, X, COS), call(aten.mul.Tensor, TURNED, SIN))
# With more numbers of a head than turn: none, here.
ROTATION_AND_REST = call(aten.cat.default, [X, call(aten.slice.Tensor, Y, AXIS, HALF, END)], -1)
PLACES = Wide(call(aten.unsqueeze.default, Value("position_ids"), 2))
HALVES = call(aten.mul.Tensor, PLACES, WEIGHT)
# The same numbers up to and including transformers 5.18: a product of matrices of inner size 1.
LINE = Wide(call(aten.unsqueeze.default, Value("position_ids"), 1))
OUTER = call(aten.transpose.int, call(aten.matmul.default, WEIGHT, LINE), 1, 2)
ACTIVATIONS = {
    "silu": call(aten.silu.default, X),
    "gelu_tanh": call(aten.gelu.default, X, approximate="tanh"),
    "gelu": call(aten.gelu.default, X),
}
GATES = {
    name: (call(aten.mul.Tensor, active, Y), call(aten.mul.Tensor, Y, active))
    for name, active in ACTIVATIONS.items()
}
CAP = call(aten.mul.Tensor, call(aten.tanh.default, call(aten.div.Tensor, X, SCALE)), SCALE)
SUM = call(aten.add.Tensor, X, Y)
WANTED = call(aten.index.Tensor, X, [None, Value("wanted")])
LOOKED_UP = call(aten.embedding.default, WEIGHT, Value("input_ids"))
LOOKED_UP_PADDED = call(aten.embedding.default, WEIGHT, Value("input_ids"), AXIS)
LOOKED_UP_SCALED = tuple(
    call(aten.mul.Tensor, looked_up, SCALE) for looked_up in (LOOKED_UP, LOOKED_UP_PADDED)
)


def angles(function: torch._ops.OpOverload) -> Iterator[tuple[Operator, bool]]:
    """The cosines or sines of all positions, with and without a scale, for all heads.

    With each pattern comes whether they are rounded.
    """
    for halves in (HALVES, OUTER):
        bare = call(function, call(aten.cat.default, [halves, halves], -1))
        for turns in (call(aten.mul.Tensor, bare, SCALE), bare):
            yield call(aten.unsqueeze.default, Narrow(turns), 1), True
            yield call(aten.unsqueeze.default, turns, 1), False


def matched(
    pattern: Any,
    item: Any,
    makers: Mapping[Value, Operation],
    casts: Mapping[Value, torch.dtype],
    dtype: torch.dtype,
) -> dict[str, Any] | None:
    """Match an argument or a result of a step with a pattern.

    Args:
        pattern: the pattern
        item: the argument or result
        makers: the step that made each result
        casts: the dtype of results that differ from an argument in this alone
        dtype: of the model; casts to it and to float32 are left out if it is float32

    Returns:
        the values of the pattern's names, or None if `item` does not fit
    """
    values: dict[str, Any] = {}

    def fits(pattern: Any, item: Any) -> bool:
        if isinstance(pattern, Hole):
            return values.setdefault(pattern.name, item) == item
        if isinstance(pattern, (Wide, Narrow)):
            if dtype != torch.float32:
                into = torch.float32 if isinstance(pattern, Wide) else dtype
                if not isinstance(item, Value) or casts.get(item) != into:
                    return False
                item = makers[item].arguments[0]
            return fits(pattern.of, item)
        if isinstance(pattern, Operator):
            step = makers.get(item) if isinstance(item, Value) else None
            if (
                step is None
                or step.function != pattern.function
                or step.options != dict(pattern.options)
            ):
                return False
            return fits(pattern.arguments, step.arguments)
        if type(item) is not type(pattern):
            return False
        if isinstance(pattern, (list, tuple)):
            return len(item) == len(pattern) and all(map(fits, pattern, item))
        return item == pattern

    return values if fits(pattern, item) else None
