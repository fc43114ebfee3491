"""Two made-up devices: what a test can have of a second one without it."""

from typing import Any

import torch


class Here(torch.Tensor):
    """Tensors of one made-up device. Those of the other are not taken beside them, until `.to` brings them over."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.to:
            return args[0].as_subclass(torch.Tensor)
        if {Here, Elsewhere} <= set(types):
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, args, kwargs or {})


class Elsewhere(Here):
    """Tensors of the other."""

    __torch_function__ = classmethod(Here.__torch_function__.__func__)
