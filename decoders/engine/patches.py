"""Functions that a caller has put into a model: hooks, and others in place of `forward`."""

from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any, TypeGuard

import torch
from torch.nn.modules import module as registry

# Hooks that act in a pass. Passes are made without gradients, so backward hooks have no part.
HOOKS = "_forward_pre_hooks", "_forward_hooks"
# Names of hooks by which transformers, peft and trl change no number.
IDLE = "output_capturing_hook", "make_inputs_require_grads", "make_inputs_require_grad"


def hooks(held: Mapping[str, Any]) -> Iterator[tuple[int, Callable]]:
    """The hooks of a module that act in a pass, each with its number, which no other has.

    Args:
        held: the module's `vars`
    """
    for name in HOOKS:
        if own := held[name]:
            yield from (each for each in own.items() if not idle(each[1]))


def idle(hook: Callable) -> bool:
    return getattr(hook, "__name__", "") in IDLE


def global_hooks() -> list[tuple[int, Callable]]:
    """The hooks of all modules."""
    return [
        *registry._global_forward_pre_hooks.items(),
        *registry._global_forward_hooks.items(),
    ]


def forward_of(module: torch.nn.Module) -> Callable | None:
    """What a module has in place of its class's `forward`, or None.

    `module.forward = torch.compile(module.forward)` puts the same in its place.
    """
    forward: Any = vars(module).get("forward")
    forward = getattr(forward, "_torchdynamo_orig_callable", forward)
    return None if bound(forward, module) and forward.__func__ is type(module).forward else forward


def bound(forward: Any, module: torch.nn.Module) -> TypeGuard[MethodType]:
    """Whether it is a method of the module, as libraries of faster layers give it."""
    return isinstance(forward, MethodType) and forward.__self__ is module


def replacement(module: torch.nn.Module) -> Callable | None:
    """The caller's function in place of `forward`, if there is one.

    Methods are as good as a class's, and those of accelerate move tensors between devices.
    """
    forward = forward_of(module)
    return None if bound(forward, module) or "_hf_hook" in vars(module) else forward


def patched(model: torch.nn.Module) -> str:
    """Why a pass is no longer the model's code alone, as a clause; "" while it is."""
    if global_hooks():
        return "there is a hook on all modules"
    for name, module in model.named_modules():
        place = f"its module {name}" if name else "it"
        if any(hooks(vars(module))):
            return f"{place} has a hook"
        if replacement(module) is not None:
            return f"{place} has another function for its forward"
    return ""
