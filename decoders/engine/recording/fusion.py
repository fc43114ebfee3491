"""A recording's root mean square norms and rotations in fewer calls (fused).

With one token, a call takes longer than its computation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from decoders.engine.recording.function import is_view, needed
from decoders.engine.recording.recorder import Constant, Step, Value

aten = torch.ops.aten
END = 2**63 - 1  # the end of a slice without one


@dataclass(frozen=True)
class Hole:
    """In a pattern: any value, the same wherever this name stands."""

    name: str


@dataclass(frozen=True)
class Call:
    """In a pattern: the result of this operator with these arguments."""

    function: torch._ops.OpOverload
    arguments: tuple


def call(function: torch._ops.OpOverload, *arguments: Any) -> Call:
    return Call(function, arguments)


X, COS, SIN, HALF, AXIS, WEIGHT, EPS = map(
    Hole, ("x", "cos", "sin", "half", "axis", "weight", "eps")
)
MEAN_SQUARE = call(aten.mean.dim, call(aten.pow.Tensor_Scalar, X, 2), [-1], True)
LENGTHS = call(aten.rsqrt.default, call(aten.add.Tensor, MEAN_SQUARE, EPS))
NORM = call(aten.mul.Tensor, WEIGHT, call(aten.mul.Tensor, X, LENGTHS))
SECOND = call(aten.neg.default, call(aten.slice.Tensor, X, AXIS, HALF, END))
TURNED = call(aten.cat.default, [SECOND, call(aten.slice.Tensor, X, AXIS, 0, HALF)], -1)
ROTATION = call(aten.add.Tensor, call(aten.mul.Tensor, X, COS), call(aten.mul.Tensor, TURNED, SIN))
WANTED = call(aten.index.Tensor, X, [None, Value("wanted")])
# Calls without effect: a view of everything, and the scaling of cosines and sines in models that do
# not scale them.
IDLE = (
    call(aten.alias.default, X),
    call(aten.mul.Tensor, call(aten.cos.default, X), 1.0),
    call(aten.mul.Tensor, call(aten.sin.default, X), 1.0),
)


def matched(pattern: Any, item: Any, makers: Mapping[Value, Step]) -> dict[str, Any] | None:
    """Match an argument or a result of a step with a pattern.

    Returns:
        the values of the pattern's names, or None if `item` does not fit
    """
    values: dict[str, Any] = {}

    def fits(pattern: Any, item: Any) -> bool:
        if isinstance(pattern, Hole):
            return values.setdefault(pattern.name, item) == item
        if isinstance(pattern, Call):
            step = makers.get(item) if isinstance(item, Value) else None
            if step is None or step.function != pattern.function or step.options:
                return False
            return fits(pattern.arguments, step.arguments)
        if type(item) is not type(pattern):
            return False
        if isinstance(pattern, (list, tuple)):
            return len(item) == len(pattern) and all(map(fits, pattern, item))
        return item == pattern

    return values if fits(pattern, item) else None


def fused(steps: Sequence[Step], answers: Sequence[Value]) -> tuple[list[Step], tuple[Value, ...]]:
    """Rewrite steps in fewer calls that give the same answers, apart from the order of sums.

    Args:
        steps: the calls in order
        answers: the values that they lead to

    Returns:
        the new calls, and the answers under their names there
    """
    makers: dict[Value, Step] = {}
    # Results that need no call, and the values that they equal.
    same: dict[Value, Value] = {}
    views: dict[tuple, Value] = {}
    # Sines, and the values in which their first half has the other sign.
    signed: dict[Value, Value] = {}
    out: list[Step] = []

    def renamed(part: Any) -> Any:
        return same.get(part, part) if isinstance(part, Value) else part

    for step in steps:
        step = step._replace(
            arguments=tree_map(renamed, step.arguments), options=tree_map(renamed, step.options)
        )
        result = step.results[0] if step.single else None
        if result is None or not isinstance(step.function, torch._ops.OpOverload):
            out.append(step)
            continue
        makers[result] = step
        if any(matched(pattern, result, makers) for pattern in IDLE):
            same[result] = step.arguments[0]
        elif (
            is_view(step)
            and all(isinstance(a, (Value, int)) for a in step.arguments)
            and (first := views.setdefault((step.function, step.arguments), result)) != result
        ):
            same[result] = first
        else:
            out += in_fewer(step, result, makers, signed)
    answers = tuple(same.get(answer, answer) for answer in answers)
    return needed(out, answers), answers


def in_fewer(
    step: Step, result: Value, makers: Mapping[Value, Step], signed: dict[Value, Value]
) -> Iterator[Step]:
    """Yield the step or, if it ends a pattern, the fewer steps that give the same result."""

    def made(function: Any, name: str, *arguments: Any, **options: Any) -> Step:
        return Step(function, arguments, options, (Value(name),), True)

    if (
        (norm := matched(NORM, result, makers))
        and size_of(norm["weight"])
        and isinstance(norm["eps"], float)
    ):
        # w x / sqrt(|x|^2 / d + eps) = w (sqrt(d) x / sqrt(|x|^2 + d eps))
        size, name = size_of(norm["weight"]), result.name
        # A float64 tensor without a dimension takes the other operand's dtype and loses nothing.
        least, nothing = (
            Constant(torch.tensor(x, dtype=torch.float64))
            for x in (math.sqrt(size * norm["eps"]), 0.0)
        )
        yield made(torch.linalg.vector_norm, f"{name}_norm", norm["x"], 2, -1, True)
        yield made(torch.hypot, f"{name}_length", Value(f"{name}_norm"), least)
        yield made(
            torch.addcdiv,
            f"{name}_unit",
            nothing,
            norm["x"],
            Value(f"{name}_length"),
            value=math.sqrt(size),
        )
        yield made(torch.mul, name, norm["weight"], Value(f"{name}_unit"))
    elif (turn := matched(ROTATION, result, makers)) and isinstance(turn["half"], int):
        # Halves change places by a roll; the sign of one goes to the sines, once for all layers.
        sin, half = turn["sin"], turn["half"]
        if sin not in signed:
            signed[sin] = Value(f"{result.name}_sin")
            signs = Constant(torch.tensor([-1] * half + [1] * half, dtype=torch.int8))
            yield made(torch.mul, signed[sin].name, sin, signs)
        yield made(torch.roll, f"{result.name}_turned", turn["x"], half, turn["axis"])
        yield made(
            torch.addcmul,
            result.name,
            step.arguments[0],
            Value(f"{result.name}_turned"),
            signed[sin],
        )
    elif wanted := matched(WANTED, result, makers):
        yield made(torch.index_select, result.name, wanted["x"], 1, Value("wanted"))
    else:
        yield step


def size_of(weight: Any) -> int:
    """The length of the rows that a weight scales; 0 if it scales none."""
    tensor = weight.value if isinstance(weight, Constant) else None
    return (
        tensor.numel()
        if isinstance(tensor, torch.Tensor) and tensor.dim() == 1 and tensor.numel() > 1
        else 0
    )
