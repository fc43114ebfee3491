"""Made-up devices, which stand in for a second one."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class Here(torch.Tensor):
    """Tensors of one made-up device.

    Those of the other are not taken beside them, until `.to` brings them over."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.to:
            return args[0].as_subclass(torch.Tensor)
        if {Here, Elsewhere} <= set(types):
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, args, kwargs or {})


class Elsewhere(Here):
    """Tensors of the other."""

    __torch_function__ = classmethod(Here.__torch_function__.__func__)


FAR = torch.device("xla", 1)


class Far(torch.Tensor):
    """Tensors that say that they are on FAR. Others, but for single numbers, are not taken beside
    them."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function == torch.Tensor.device.__get__:
            return FAR
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(not isinstance(tensor, Far) and tensor.dim() for tensor in tensors):
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().__torch_function__(function, types, args, kwargs)


class TwoDevices(TorchFunctionMode):
    """While this is on, there is a device FAR beside the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        places = [
            place for place in (*args, kwargs.get("device")) if isinstance(place, torch.device)
        ]
        if not places:
            return function(*args, **kwargs)
        near = [torch.device("cpu") if isinstance(arg, torch.device) else arg for arg in args]
        if function is torch.Tensor.to:
            near[0] = near[0].as_subclass(torch.Tensor)
        out = function(*near, **kwargs | ({"device": "cpu"} if "device" in kwargs else {}))
        return out.as_subclass(Far) if places == [FAR] else out


def put_far(module: torch.nn.Module) -> None:
    """Move the weights of a module."""
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                part._parameters[name] = torch.nn.Parameter(
                    weight.data.as_subclass(Far), requires_grad=False
                )
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.as_subclass(Far)
