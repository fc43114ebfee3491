"""Everything besides the plan that can change an answer: the code and the models."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

import decoders
from decoders import ModelPair
from workbench.models.environment import environment


@cache
def code() -> str:
    """A hash of the sources of `decoders`."""
    root = Path(decoders.__file__).parent
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if "integrations" not in file.parts:
            found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def identity(pair: ModelPair) -> dict[str, Any]:
    """Models, dtype and kind of device, which a cell's id contains."""
    where = environment(pair)
    models = {
        role: _model(getattr(pair, role), where[role])
        for role in ("target", "draft")
        if where[role]
    }
    return {**models, "dtype": where["dtype"], "device": pair.target.device.type}


def _model(model: torch.nn.Module, known: dict[str, Any]) -> str:
    """The hub's revision; for other models a hash of their weights."""
    if known["revision"]:
        return f"{known['name']}@{known['revision']}"
    return f"{known['type']} {weights(model)}"


def weights(model: torch.nn.Module) -> str:
    """A hash of a model's weights."""
    found = hashlib.sha256()
    for name, weight in model.state_dict().items():
        found.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        found.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]
