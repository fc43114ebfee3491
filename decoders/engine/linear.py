"""Linear layers for packed passes: on a CPU their products are oneDNN's, from weights in its own layout."""

import itertools
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear

from decoders.engine.quantization import is_plain

COPIED_BYTES = 2**30  # the weights of larger models are not copied: there memory matters more than time


def copies_bytes(weight_bytes: int, device: torch.device) -> int:
    """The most bytes that copies of weights take on this device, for a pair of models whose weights take `weight_bytes` together."""
    return min(weight_bytes, 2 * COPIED_BYTES) if device.type == "cpu" else 0


def _types() -> tuple[torch.dtype, ...]:
    if not torch.backends.mkldnn.is_available():
        return ()
    return (torch.float32, torch.bfloat16) if torch.ops.mkldnn._is_mkldnn_bf16_supported() else (torch.float32,)


TYPES = _types()  # what oneDNN supports on this CPU


class PassLinear(torch.nn.Linear):
    """A linear layer whose product on a CPU is oneDNN's, in float32 and bfloat16.

    The usual float32 product is MKL's, which takes twice as long on AMD. Both are far slower than the memory bus if the weights are
    stored row by row. So, with `copies`, a copy in oneDNN's blocks is used, and made again when the weights change in place.
    """

    copies: bool
    number: int
    _stamp: tuple[int, int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        if x.device.type != "cpu" or x.dtype not in TYPES:
            return linear(x, self.weight, self.bias)
        if torch.compiler.is_compiling():
            return torch.ops.decoders.product(x, self.number, self.out_features)
        return self.product(x)

    def product(self, x: Tensor) -> Tensor:
        weight = self._blocks() if self.copies else self.weight
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, self.bias, "none", (), "")

    def _blocks(self) -> Tensor:
        stamp = self.weight._version, self.weight.data_ptr()
        if stamp != self._stamp:
            self._stamp, self._copy = stamp, torch.ops.mkldnn._reorder_linear_weight(self.weight)
        return self._copy


# An operator, so that a compiled pass has no graph break. It cannot take a module or a copy in blocks, so it takes a number.
_layers: WeakValueDictionary[int, PassLinear] = WeakValueDictionary()
_numbers = itertools.count()
torch.library.define("decoders::product", "(Tensor x, int layer, SymInt size) -> Tensor")


@torch.library.impl("decoders::product", "cpu")
def _(x, layer, size):
    return _layers[layer].product(x)


@torch.library.register_fake("decoders::product")
def _(x, layer, size):
    return x.new_empty(*x.shape[:-1], size)


def hasten(model: torch.nn.Module, most_copied: int = COPIED_BYTES) -> None:
    """Turn the plain linear layers of a model into PassLinear. Their weights stay where they are, and are copied if they take at most
    `most_copied` bytes."""
    plain = [m for m in model.modules() if type(m) is torch.nn.Linear and is_plain(m.weight)]
    tracked = not any(module.weight.is_inference() for module in plain)  # otherwise a change could not be noticed
    for module in plain:
        module.__class__ = PassLinear
        module.number = next(_numbers)
        _layers[module.number] = module
        module.copies = tracked and sum(m.weight.nbytes for m in plain) <= most_copied
