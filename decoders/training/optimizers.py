"""Optimizers of a training: Muon for matrices, AdamW for norms, embeddings and output rows."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from decoders.devices import device_of


class InFloat32(TorchFunctionMode):
    """Muon's products in float32: torch's Muon asks for bfloat16 whatever the processor."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is Tensor.bfloat16:
            return args[0].clone()
        return func(*args, **(kwargs or {}))


class Optimizers:
    """Muon and AdamW as one. Each group of parameters remembers its `peak` rate.

    Args:
        muon: groups of matrices, each with "params" and "peak"
        adam: groups of all others
        decay: weight decay of the matrices
        adam_decay: weight decay of the others

    Source:
        Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"
    """

    def __init__(
        self,
        muon: Sequence[dict[str, Any]],
        adam: Sequence[dict[str, Any]],
        decay: float,
        adam_decay: float = 0.0,
    ):
        self.each: list[torch.optim.Optimizer] = [
            torch.optim.Muon([{**g, "weight_decay": decay} for g in muon], lr=muon[0]["peak"]),
            torch.optim.AdamW(list(adam), betas=(0.9, 0.95), weight_decay=adam_decay),
        ]
        self._device = muon[0]["params"][0].device

    def step(self, factor: float) -> None:
        """Make a step at `factor` times the peak rates, and forget the gradients."""
        for one in self.each:
            for group in one.param_groups:
                group["lr"] = group["peak"] * factor
            exact = device_of(self._device).training_dtype == torch.float32
            with InFloat32() if exact else nullcontext():
                one.step()
            one.zero_grad()

    def state_dict(self) -> list[dict]:
        return [one.state_dict() for one in self.each]

    def load_state_dict(self, states: Sequence[dict]) -> None:
        for one, state in zip(self.each, states, strict=True):
            one.load_state_dict(state)
