"""Linear layers for packed passes, which FBGEMM or oneDNN multiplies on a CPU (PassLinear).

Their weights are copied to the layout that these libraries want.
"""

import itertools
import math
import warnings
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.nn.functional import linear

from decoders.devices import device_of
from decoders.engine.recording.recorder import as_one_step
from decoders.engine.weights.quantization import is_plain

# The weights of larger models are not copied: there memory matters more than time.
COPIED_BYTES = 2**30


def copies_bytes(weight_bytes: int, device: torch.device) -> int:
    """The most bytes that the copies of a pair's weights take on a device.

    Args:
        weight_bytes: bytes of the weights of both models together
        device: where the models are
    """
    return min(weight_bytes, 2 * COPIED_BYTES) if device_of(device).on_host else 0


# The dtypes that oneDNN supports on this CPU.
TYPES: tuple[torch.dtype, ...] = ()
if torch.backends.mkldnn.is_available():
    TYPES = (
        (torch.float32, torch.bfloat16)
        if torch.ops.mkldnn._is_mkldnn_bf16_supported()
        else (torch.float32,)
    )


def _multiplies_halves() -> bool:
    """Whether FBGEMM multiplies float32 by weights stored in float16 here.

    torch has announced that these operators will go; oneDNN then takes their place.
    """
    x = torch.arange(6.0).view(2, 3)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            half = torch.fbgemm_pack_gemm_matrix_fp16(x)
            return torch.equal(_scaled(x, half, 1.0, torch.zeros(2)), x @ x.T)
    except (AttributeError, RuntimeError):
        return False


def _scaled(x: torch.Tensor, half: torch.Tensor, factor: float, bias: torch.Tensor) -> torch.Tensor:
    out = torch.fbgemm_linear_fp16_weight_fp32_activation(x.float(), half, bias)
    return (out if factor == 1 else out.mul_(factor)).to(x.dtype)


HALVES = _multiplies_halves()
# Up to this many tokens, a product with float16 weights is quicker than oneDNN's: it reads half of
# the bytes and waits for no other thread.
FEW = {torch.float32: 32, torch.bfloat16: 8}
# With more tokens it is quicker up to this many, divided by the number of threads, because it uses
# one thread.
MANY = {torch.float32: 192, torch.bfloat16: 0}


def half_of(weight: torch.Tensor) -> tuple[torch.Tensor, float] | None:
    """Pack a weight (out, in) in float16 for FBGEMM.

    Weights published in bfloat16 have 8 significant bits, and float16 has 11; a power of two brings
    small weights into its range.

    Returns:
        the packed weight and the factor for products with it; None if float16 loses more of any row
            than float32 rounds off
    """
    exact = weight.float()
    largest = float(exact.abs().max())
    for scale in (1.0, 2.0 ** (15 - math.frexp(largest)[1]) if 0 < largest < math.inf else 1.0):
        scaled = exact * scale
        lost = (scaled.half().float() - scaled).norm(dim=1)
        if bool((lost <= torch.finfo(torch.float32).eps * scaled.norm(dim=1)).all()):
            return torch.fbgemm_pack_gemm_matrix_fp16(scaled), 1 / scale
    return None


class PassLinear(torch.nn.Linear):
    """A linear layer whose product on a CPU is FBGEMM's or oneDNN's, in float32 and bfloat16.

    The usual float32 product is MKL's, which takes twice as long on AMD. If weights are stored row
    by row, both MKL and oneDNN are far slower than the memory bus. So there is one copy of the
    weights, which is made again when they change in place: in float16 if that is exact, for passes
    of few tokens, which FBGEMM multiplies five times as fast; otherwise in oneDNN's blocks.

    Attributes:
        copies: whether the weights are copied
        number: the layer's number for the operator of compiled passes
        copied_bytes: bytes of the copy that exists now
    """

    copies: bool
    number: int
    copied_bytes = 0
    _stamp: tuple[int, int, int | None] | None = None
    _copies: tuple[torch.Tensor | None, float, torch.Tensor]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., in) -> (..., out)."""
        if not device_of(x.device).on_host or x.dtype not in TYPES:
            return linear(x, self.weight, self.bias)
        if torch.compiler.is_compiling():
            return torch.ops.decoders.product(x, self.number, self.out_features)
        return self.product(x)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        if self.copies:
            half, factor, other = self._copy()
            if half is None:
                return self._by_onednn(x, other)
            if x.numel() <= FEW[x.dtype] * self.in_features:
                return _scaled(x, half, factor, other)
            return as_one_step(self._many, x)
        return self._by_onednn(x, self.weight)

    def _many(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply by float16 weights or oneDNN, as the numbers of tokens and threads decide."""
        if x.numel() * torch.get_num_threads() > MANY[x.dtype] * self.in_features:
            return self._by_onednn(x, self.weight)
        half, factor, bias = self._copy()
        assert half is not None  # recorded for float16 weights alone
        return _scaled(x, half, factor, bias)

    def _by_onednn(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, self.bias, "none", (), "")

    def _copy(self) -> tuple[torch.Tensor | None, float, torch.Tensor]:
        """The float16 weights, product factor and float32 bias; or None, 1, weights in blocks."""
        stamp = (
            self.weight._version,
            self.weight.data_ptr(),
            None if self.bias is None else self.bias._version,
        )
        if stamp != self._stamp:
            packed = half_of(self.weight) if HALVES else None
            if packed is None:
                self._copies = None, 1.0, torch.ops.mkldnn._reorder_linear_weight(self.weight)
            else:
                bias = torch.zeros(self.out_features) if self.bias is None else self.bias.float()
                self._copies = *packed, bias / packed[1]
            self.copied_bytes = self.weight.nbytes if packed is None else self.weight.numel() * 2
            self._stamp = stamp
        return self._copies


# An operator, so that a compiled pass has no graph break. It cannot take a module or a copy in
# blocks, so it takes the layer's number.
_layers: WeakValueDictionary[int, PassLinear] = WeakValueDictionary()
_numbers = itertools.count()
torch.library.define("decoders::product", "(Tensor x, int layer, SymInt size) -> Tensor")


@torch.library.impl("decoders::product", "cpu")
def _(x: torch.Tensor, layer: int, size: int) -> torch.Tensor:
    return _layers[layer].product(x)


@torch.library.register_fake("decoders::product")
def _fake(x: torch.Tensor, layer: int, size: int) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], size)


def hasten(model: torch.nn.Module, most_copied: int = COPIED_BYTES) -> None:
    """Turn the plain linear layers of a model into PassLinear.

    Args:
        model: the model, whose weights stay where they are
        most_copied: the most bytes of weights that are copied as well
    """
    plain: list[Any] = [
        m for m in model.modules() if type(m) is torch.nn.Linear and is_plain(m.weight)
    ]
    size = sum(module.weight.nbytes for module in plain)
    for module in plain:
        module.__class__ = PassLinear
        module.number = next(_numbers)
        _layers[module.number] = module
        # A change of weights made in inference mode would go unnoticed.
        module.copies = size <= most_copied and not any(m.weight.is_inference() for m in plain)
