"""Deliberate mistakes: a check that finds none of them proves nothing."""

import inspect
import sys
import types
from typing import Any

import torch


def mutant(thing: Any, *edits: tuple[str, str], **names: Any) -> Any:
    """A class or function with a mistake in it, from an edited copy of its module.

    Args:
        thing: the class or function
        edits: pairs (old, new); each old text occurs once in the module's source and is replaced
        names: values that the new source may use
    """
    module = sys.modules[thing.__module__]
    source = inspect.getsource(module)
    for old, new in edits:
        assert source.count(old) == 1, (
            f"{old!r} stands {source.count(old)} times in {module.__name__}"
        )
        source = source.replace(old, new)
    wrong = types.ModuleType(module.__name__)
    wrong.__dict__.update(names)
    exec(compile(source, f"{module.__file__} (mutant)", "exec"), wrong.__dict__)
    return getattr(wrong, thing.__name__)


def last_of_equals(x: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = x.flip(-1).sort(dim=dim, descending=True, stable=True)
    return values[..., :k], x.shape[-1] - 1 - ids[..., :k]
