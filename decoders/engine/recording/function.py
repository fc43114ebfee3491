"""The plain function that makes the calls of a recording (as_function).

A pass then costs only its operators, without the Python of the model's modules between them and
without a compiler.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from decoders.engine.recording.recorder import Constant, Size, Step, Value


def as_function(
    steps: Sequence[Step], answers: Sequence[Value], inputs: Sequence[str]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Build the Python function that makes these calls and returns the answers.

    Its parameters are `inputs`, then the two numbers on which a Size depends. Steps that nothing
    needs are left out, views of weights are made now, and values are freed after their last use.
    """
    steps, known = folded(needed(steps, answers))
    kept = {*answers, *known, *map(Value, inputs)}
    last = {value: i for i, step in enumerate(steps) for value in values_in(step) - kept}
    names: dict[str, Any] = {}

    def name(thing: Any) -> str:
        label = f"c{len(names)}"
        names[label] = thing
        return label

    def written(item: Any) -> str:
        if isinstance(item, Value):
            return written(known[item]) if item in known else item.name
        if isinstance(item, Size):
            return f"{item.tokens} * n_tokens + {item.wanted} * n_wanted + {item.rest}"
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
        if any(step.results):
            results = ", ".join(value.name if value else "_" for value in step.results)
            call = f"{results}{'' if step.single else ','} = {call}"
        lines.append(call)
        if gone := [value.name for value, end in last.items() if end == i]:
            lines.append(f"del {', '.join(gone)}")
    source = f"def replay({', '.join(inputs)}, n_tokens, n_wanted):\n    " + "\n    ".join(
        [*lines, f"return {written(tuple(answers))}"]
    )
    exec(compile(source, "<recorded pass>", "exec"), names)
    return names["replay"]


def values_in(step: Step) -> set[Value]:
    leaves = tree_leaves((step.arguments, step.options))
    return {leaf for leaf in leaves if isinstance(leaf, Value)}


def needed(steps: Sequence[Step], answers: Sequence[Value]) -> list[Step]:
    """Keep the steps that the answers depend on and those that write into memory."""
    wanted, kept = set(answers), []
    for step in reversed(steps):
        if (
            not isinstance(step.function, torch._ops.OpOverload)
            or step.function._schema.is_mutable
            or wanted.intersection(step.results)
        ):
            wanted |= values_in(step)
            kept.append(step)
    return kept[::-1]


def is_view(step: Step) -> bool:
    """Whether a step only looks at a tensor in another shape."""
    function = step.function
    return isinstance(function, torch._ops.OpOverload) and function.is_view and not step.options


def folded(steps: Sequence[Step]) -> tuple[list[Step], dict[Value, Constant]]:
    """Separate the views of weights from the other steps.

    The views become constants, which follow the weights as they change.
    """
    known: dict[Value, Constant] = {}

    def plain(item: Any) -> Any:
        item = known[item] if isinstance(item, Value) else item
        return item.value if isinstance(item, Constant) else item

    left = []
    for step in steps:
        if (
            is_view(step)
            and step.single
            and values_in(step) <= known.keys()
            and (result := step.results[0])
            and not any(isinstance(a, Size) for a in step.arguments)
        ):
            known[result] = Constant(step.function(*tree_map(plain, step.arguments)))
        else:
            left.append(step)
    return left, known


# Operators that a Python function of torch calls with the same arguments in half of the time.
_NAMES = (
    "abs", "add", "addmm", "bmm", "cat", "clone", "cos", "div", "dropout", "embedding", "eq", "exp",
    "expand", "gelu", "index_select", "masked_fill", "mean", "mm", "mul", "neg", "permute", "pow",
    "relu", "reshape", "rsqrt", "select", "sigmoid", "silu", "sin", "softmax", "sqrt", "squeeze",
    "sub", "sum", "tanh", "transpose", "unsqueeze", "view", "where",
)  # fmt: skip
_PLACES = torch, torch._C._nn, torch.Tensor
QUICK = {name: next(getattr(p, name) for p in _PLACES if hasattr(p, name)) for name in _NAMES} | {
    "_unsafe_view": torch.Tensor.view,
    "fbgemm_linear_fp16_weight_fp32_activation": torch.fbgemm_linear_fp16_weight_fp32_activation,
}


def quickest(step: Step) -> Callable:
    function = step.function
    if not isinstance(function, torch._ops.OpOverload) or function.namespace != "aten":
        return function
    name = function._schema.name.removeprefix("aten::")
    if function == torch.ops.aten.to.dtype or (
        name == "_to_copy" and step.options.keys() == {"dtype"}
    ):
        return torch.Tensor.to
    return QUICK.get(name, function)
