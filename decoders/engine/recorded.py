"""A model's operators noted one by one (Recorder), and the plain function that makes the same calls (as_function).

So a pass costs what its operators cost, without the Python of the model's modules between them and without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, _get_current_dispatch_mode

Sizes = tuple[int, int]  # tokens of a pass, and how many of them want logits


class CannotRecord(Exception):
    """A pass does something that a replay could not do again."""


class Step(NamedTuple):
    """One call. Arguments hold Value, Constant, Size and plain objects, in lists and dicts as they were given.

    results   the Value of each tensor it made, None where it gave back one that it got
    """

    function: Callable
    arguments: tuple
    options: dict[str, Any]
    results: tuple[Value | None, ...]
    single: bool


@dataclass(frozen=True)
class Value:
    """What a step made, or an input of the pass."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant:
    """A weight, a buffer, or what a model makes of plain numbers in each pass."""

    value: Any


@dataclass(frozen=True)
class Size:
    """A number that depends on the pass: of its tokens and of those that want logits."""

    tokens: int
    wanted: int
    rest: int

    def __str__(self) -> str:
        return f"{self.tokens} * n_tokens + {self.wanted} * n_wanted + {self.rest}"


class Recorder(TorchDispatchMode):
    """Notes every operator that runs under it, and the calls of `as_one_step` whole."""

    def __init__(self, inputs: dict[str, Any]):
        super().__init__()
        self.steps: list[Step] = []
        self._values = {id(value): Value(name) for name, value in inputs.items()}
        self._kept = list(inputs.values())  # an object that is gone could give its id to another

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.note(function, args, kwargs or {})

    def note(self, function: Callable, arguments: tuple, options: dict[str, Any]) -> Any:
        if isinstance(function, torch._ops.OpOverload):
            refuse_reading(function, arguments)
        noted = self._noted(arguments), self._noted(options)
        out = function(*arguments, **options)
        tensors = out if isinstance(out, (tuple, list)) else (out,)
        self.steps.append(Step(function, *noted, tuple(map(self._result, tensors)), tensors is not out))
        return out

    def _result(self, tensor: Any) -> Value | None:
        if not isinstance(tensor, Tensor) or id(tensor) in self._values:
            return None
        self._kept.append(tensor)
        return self._values.setdefault(id(tensor), Value(f"v{len(self._kept)}"))

    def value_of(self, tensor: Tensor) -> Value:
        return self._values[id(tensor)]

    def _noted(self, item: Any) -> Any:
        if id(item) in self._values:
            return self._values[id(item)]
        if isinstance(item, Tensor):
            self._kept.append(item)
            return Constant(item)
        if isinstance(item, (list, tuple)) and type(item) in (list, tuple, torch.Size):
            return (list if isinstance(item, list) else tuple)(map(self._noted, item))
        if isinstance(item, dict):
            return {key: self._noted(value) for key, value in item.items()}
        return item


def as_one_step(function: Callable, *arguments: Any) -> Any:
    """Call a function; a recording notes the call, which a replay makes again, and nothing of what happens inside."""
    recorder = None if torch.compiler.is_compiling() else _get_current_dispatch_mode()
    if not isinstance(recorder, Recorder):
        return function(*arguments)
    with _disable_current_modes():
        return recorder.note(function, arguments, {})


def refuse_reading(function: torch._ops.OpOverload, arguments: tuple) -> None:
    """Raise CannotRecord if Python sees what this operator computes: it could do otherwise in another pass."""
    indices = arguments[1] if function.overloadpacket is torch.ops.aten.index else [None]
    by_number = all(i is None or i.dtype not in (torch.bool, torch.uint8) for i in indices)
    dynamic = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}.intersection(function.tags)
    if dynamic and not (function.overloadpacket is torch.ops.aten.index and by_number):
        raise CannotRecord(f"{function.name()} reads values back")
    idle = function is torch.ops.aten.dropout.default and not arguments[2]
    if torch.Tag.nondeterministic_seeded in function.tags and not idle:
        raise CannotRecord(f"{function.name()} draws random numbers")


def in_general(recordings: Sequence[Any], sizes: Sequence[Sizes]) -> Any:
    """One recording for passes of any size, from three of them: between the first two only the number of tokens differs, between the
    last two only that of the tokens that want logits. A number that differs is a linear function of both."""
    first = recordings[0]
    if isinstance(first, Step):
        if any(step.function != first.function or step.results != first.results for step in recordings):
            raise CannotRecord("its operators depend on the number of tokens")
        parts = ([getattr(r, name) for r in recordings] for name in ("arguments", "options"))
        return first._replace(**dict(zip(("arguments", "options"), (in_general(p, sizes) for p in parts), strict=True)))
    if isinstance(first, (list, tuple, dict)) and any(
        type(r) is not type(first) or len(r) != len(first) for r in recordings
    ):
        raise CannotRecord("its operators depend on the number of tokens")
    if isinstance(first, dict):
        return {key: in_general([r[key] for r in recordings], sizes) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(in_general(parts, sizes) for parts in zip(*recordings, strict=True))
    if isinstance(first, Constant):
        values = [r.value for r in recordings if isinstance(r, Constant)]
        if len(values) < len(recordings) or not all(v is values[0] or same(v, values[0]) for v in values):
            raise CannotRecord("a tensor depends on the number of tokens")
        return first
    if all(r == first for r in recordings):
        return first
    if not all(type(r) is int for r in recordings):
        raise CannotRecord("an argument depends on the number of tokens")
    if sizes[0] == sizes[1]:
        raise CannotRecord("an argument differs between equal passes")
    one, two, three = recordings
    tokens = (two - one) // (sizes[1][0] - sizes[0][0])
    wanted = (three - two) // (sizes[2][1] - sizes[1][1])
    size = Size(tokens, wanted, one - tokens * sizes[0][0] - wanted * sizes[0][1])
    if [size.tokens * t + size.wanted * w + size.rest for t, w in sizes] != list(recordings):
        raise CannotRecord("a size is no linear function of the number of tokens")
    return size


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two small tensors that a model made of plain numbers are equal."""
    return a.dtype == b.dtype and a.shape == b.shape and a.numel() <= 4096 and torch.equal(a, b)


def as_function(steps: Sequence[Step], answer: Value, inputs: Sequence[str]) -> Callable[..., Tensor]:
    """The Python function that makes these calls: its parameters are `inputs`, then the two numbers of Sizes.

    Steps that nothing needs are left out, those that need no input are made now, and values are let go after their last use.
    """
    steps, known = folded(needed(steps, answer))
    last = {value: i for i, step in enumerate(steps) for value in values_in((step.arguments, step.options))}
    names: dict[str, Any] = {}

    def name(thing: Any) -> str:
        label = f"c{len(names)}"
        names[label] = thing
        return label

    def written(item: Any) -> str:
        if isinstance(item, Value):
            return written(known[item]) if item in known else item.name
        if isinstance(item, Size):
            return str(item)
        if isinstance(item, (list, tuple)):
            inside = ", ".join(map(written, item))
            return f"[{inside}]" if isinstance(item, list) else f"({inside},)"
        if item is None or type(item) in (bool, int, str):
            return repr(item)
        return name(item.value if isinstance(item, Constant) else item)

    lines = []
    for i, step in enumerate(steps):
        options = "".join(f", {key}={written(value)}" for key, value in step.options.items())
        call = f"{name(quickest(step))}({', '.join(map(written, step.arguments))}{options})"
        made = [value.name if value else "_" for value in step.results]
        gone = [value.name for value, end in last.items() if end == i and value != answer and value not in known]
        lines.append(f"{', '.join(made)}{'' if step.single else ','} = {call}" if any(step.results) else call)
        lines += [f"del {', '.join(g for g in gone if g not in inputs)}"] if set(gone) - set(inputs) else []
    source = f"def replay({', '.join(inputs)}, n_tokens, n_wanted):\n    " + "\n    ".join(
        [*lines, f"return {answer.name}"]
    )
    exec(compile(source, "<recorded pass>", "exec"), names)
    return names["replay"]


def values_in(item: Any) -> set[Value]:
    if isinstance(item, Value):
        return {item}
    if isinstance(item, dict):
        item = tuple(item.values())
    return set().union(*map(values_in, item)) if isinstance(item, (list, tuple)) else set()


def needed(steps: Sequence[Step], answer: Value) -> list[Step]:
    """The steps that the answer depends on, and those that write into memory."""
    wanted, kept = {answer}, []
    for step in reversed(steps):
        writes = not isinstance(step.function, torch._ops.OpOverload) or step.function._schema.is_mutable
        if writes or wanted.intersection(step.results):
            wanted |= values_in((step.arguments, step.options))
            kept.append(step)
    return kept[::-1]


def folded(steps: Sequence[Step]) -> tuple[list[Step], dict[Value, Constant]]:
    """The steps without views of weights, and these views: they see the weights as they change."""
    known: dict[Value, Constant] = {}

    def plain(item: Any) -> Any:
        if isinstance(item, Value):
            item = known[item]
        if isinstance(item, (list, tuple)):
            return type(item)(map(plain, item))
        return item.value if isinstance(item, Constant) else item

    left = []
    for step in steps:
        views = isinstance(step.function, torch._ops.OpOverload) and step.function.is_view
        views = views and step.single and not step.options
        fixed = views and values_in(step.arguments) <= known.keys()
        if fixed and (made := step.results[0]) and not any(isinstance(a, Size) for a in step.arguments):
            known[made] = Constant(step.function(*map(plain, step.arguments)))
        else:
            left.append(step)
    return left, known


# Operators that torch's own Python functions call with the same arguments in half of the time.
_NAMES = (
    "abs", "add", "addmm", "bmm", "cat", "clone", "cos", "div", "dropout", "embedding", "eq", "exp", "expand", "gelu", "index_select",
    "masked_fill", "mean", "mm", "mul", "neg", "permute", "pow", "relu", "reshape", "rsqrt", "select", "sigmoid", "silu", "sin",
    "softmax", "sqrt", "squeeze", "sub", "sum", "tanh", "transpose", "unsqueeze", "view", "where",
)  # fmt: skip
_PLACES = torch, torch._C._nn, Tensor
QUICK = {name: next(getattr(p, name) for p in _PLACES if hasattr(p, name)) for name in _NAMES}
QUICK |= {
    "_unsafe_view": Tensor.view,
    "fbgemm_linear_fp16_weight_fp32_activation": torch.fbgemm_linear_fp16_weight_fp32_activation,
}


def quickest(step: Step) -> Callable:
    function = step.function
    if not isinstance(function, torch._ops.OpOverload) or function.namespace != "aten":
        return function
    name = function._schema.name.removeprefix("aten::")
    if function == torch.ops.aten.to.dtype or (name == "_to_copy" and step.options.keys() == {"dtype"}):
        return Tensor.to
    return QUICK.get(name, function)
