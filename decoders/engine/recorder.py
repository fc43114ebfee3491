"""A pass noted operator by operator (Recorder), for any size (in_general); patterns of its steps.

A pattern says what a norm, a rotation or a gate looks like in a recording (matched).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
)
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

LONGEST = 192  # tokens of a program's passes: longer ones gain nothing
READING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
Sizes = tuple[int, int]  # the tokens of a pass, and those of them that want logits


class CannotRecord(Exception):
    """A pass does something that a program could not repeat."""


class Operation(NamedTuple):
    """One call.

    Attributes:
        function: the operator or function
        arguments: Value, Constant, Size and plain objects, in lists and dicts like those of the
            call
        options: the same for keyword arguments
        results: the Value of each tensor that the call made; None for one that it only passed on
    """

    function: Any
    arguments: tuple
    options: dict[str, Any]
    results: tuple[Value | None, ...]


@dataclass(frozen=True)
class Value:
    """The result of a step, or an input of the pass."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A weight, a buffer, or a tensor that a model makes from plain numbers in each pass."""

    value: Any


@dataclass(frozen=True)
class Size:
    """A number that is linear in the tokens of a pass and in those of them that want logits.

    Attributes:
        tokens: factor of the number of tokens
        wanted: factor of the number of tokens that want logits
        rest: the constant term
    """

    tokens: int
    wanted: int
    rest: int


class Recorder(TorchDispatchMode):
    """Notes every operator that runs under it, and the calls of `as_one_step` as a whole.

    Args:
        inputs: the inputs of the pass by name
    """

    def __init__(self, inputs: dict[str, Any]):
        super().__init__()
        self.steps: list[Operation] = []
        self._values = {id(value): Value(name) for name, value in inputs.items()}
        # If an object were freed, another one could get its id.
        self._kept = list(inputs.values())

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.note(function, args, kwargs or {})

    def note(self, function: Callable, arguments: tuple, options: dict[str, Any]) -> Any:
        if isinstance(function, torch._ops.OpOverload):
            refuse_reading(function, arguments)
        noted = tree_map(self._noted, arguments), tree_map(self._noted, options)
        out = function(*arguments, **options)
        tensors = out if isinstance(out, (tuple, list)) else (out,)
        self.steps.append(Operation(function, *noted, tuple(map(self._result, tensors))))
        return out

    def _result(self, tensor: Any) -> Value | None:
        if not isinstance(tensor, torch.Tensor) or id(tensor) in self._values:
            return None
        self._kept.append(tensor)
        return self._values.setdefault(id(tensor), Value(f"v{len(self._kept)}"))

    def value_of(self, tensor: torch.Tensor) -> Value:
        return self._values[id(tensor)]

    def _noted(self, item: Any) -> Any:
        if id(item) in self._values:
            return self._values[id(item)]
        if isinstance(item, torch.Tensor):
            self._kept.append(item)
            return Constant(item)
        return item


def as_one_step(function: Callable, *arguments: Any) -> Any:
    """Call a function; a recording notes this call alone, not what happens inside it.

    Args:
        function: what the program calls
        arguments: its arguments
    """
    recorder = _get_current_dispatch_mode()
    if not isinstance(recorder, Recorder):
        return function(*arguments)
    with _disable_current_modes():
        return recorder.note(function, arguments, {})


def refuse_reading(function: torch._ops.OpOverload, arguments: tuple) -> None:
    """Raise CannotRecord if this operator shows Python its values or draws random numbers.

    In another pass, Python could do something else with other values.
    """
    by_number = function.overloadpacket is torch.ops.aten.index and all(
        i is None or i.dtype not in (torch.bool, torch.uint8) for i in arguments[1]
    )
    if not by_number and READING.intersection(function.tags):
        raise CannotRecord(f"{function.name()} reads values back")
    idle = function is torch.ops.aten.dropout.default and not arguments[2]
    if torch.Tag.nondeterministic_seeded in function.tags and not idle:
        raise CannotRecord(f"{function.name()} draws random numbers")


def in_general(recordings: Sequence[Any], sizes: Sequence[Sizes]) -> Any:
    """Merge three recordings into one for passes of any size.

    Only the number of tokens differs between the first two, and only that of the tokens that want
    logits between the last two. A number that differs becomes a linear function of both.
    """
    parts, kinds = zip(*map(tree_flatten, recordings), strict=True)
    if any(kind != kinds[0] for kind in kinds):
        raise CannotRecord("its operators depend on the number of tokens")
    return tree_unflatten(
        [for_any_size(each, sizes) for each in zip(*parts, strict=True)], kinds[0]
    )


def for_any_size(parts: tuple[Any, ...], sizes: Sequence[Sizes]) -> Any:
    """What stands at one place of three recordings, see `in_general`."""
    first = parts[0]
    if all(isinstance(part, Constant) for part in parts):
        if not all(part.value is first.value or same(part.value, first.value) for part in parts):
            raise CannotRecord("a tensor depends on the number of tokens")
        return first
    if all(part == first for part in parts):
        return first
    if not all(type(part) is int for part in parts):
        raise CannotRecord("an argument depends on the number of tokens")
    one, two, three = parts
    tokens = (two - one) // (sizes[1][0] - sizes[0][0])
    wanted = (three - two) // (sizes[2][1] - sizes[1][1])
    size = Size(tokens, wanted, one - tokens * sizes[0][0] - wanted * sizes[0][1])
    if [size.tokens * t + size.wanted * w + size.rest for t, w in sizes] != [*parts]:
        raise CannotRecord("a size is not a linear function of the number of tokens")
    return size


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two small tensors that a model made from plain numbers are equal."""
    return a.dtype == b.dtype and a.shape == b.shape and a.numel() <= 4096 and torch.equal(a, b)


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
NORMS: tuple[Any, ...] = (
    NORM,
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
LOOKED_UP = (
    call(aten.embedding.default, WEIGHT, Value("input_ids")),
    call(aten.embedding.default, WEIGHT, Value("input_ids"), AXIS),  # of padding
)
EMBEDDINGS: tuple[Any, ...] = (
    *LOOKED_UP,
    *(call(aten.mul.Tensor, looked_up, SCALE) for looked_up in LOOKED_UP),
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
