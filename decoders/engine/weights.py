"""Weights of packed passes: quantised ones, layers with quicker products on a CPU, large pages.

Quantised weights are made while loading (torchao), or read from a checkpoint by transformers. In a
PassLinear, weights that float16 or bfloat16 holds exactly are multiplied by this engine's kernels,
others by oneDNN.

A pass reads all weights and all rows of its cache once. If they lie in pages of 4 kB, the processor
spends a quarter of the time on looking up where each page is, because it remembers only a few
thousand. So both lie in large pages (`empty`), small weights close together in them (Shelf).
"""

import math
import mmap
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear
from transformers import PreTrainedConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils.quantization_config import Mxfp4Config

from decoders.devices import device_of
from decoders.engine.kernels import NumberType
from decoders.engine.kernels.loading import kernels
from decoders.engine.recorder import LONGEST, as_one_step
from decoders.errors import InputError, allowed, installed
from decoders.inputs import is_gguf

PAGE, LINE = 2**21, 64  # bytes
STRETCH = 8 * PAGE
_lock = threading.Lock()  # passes of one model may come from several threads


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU, in large pages if it would fill at least a quarter of one.

    Linux gives them on request; elsewhere, and where it does not, pages are the usual ones.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < PAGE // 4 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device="cpu")
    # Large pages begin at multiples of their size, so there is one more.
    whole = PAGE + -(-size // PAGE) * PAGE
    try:
        memory = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no room, or a kernel without them
        return torch.empty(shape, dtype=dtype, device="cpu")
    begin = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % PAGE
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).view(shape)


class Shelf:
    """Keeps copies of tensors on the CPU, small ones one after another in stretches of memory.

    A stretch is freed when it is full, or the next one has begun, and the last of its tensors has
    gone.
    """

    def __init__(self) -> None:
        self._free = empty([0], torch.uint8)

    # A stretch that was made in inference mode could not be written to outside of it.
    @torch.inference_mode(False)
    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy, which begins where a line of the cache does."""
        size = -(-tensor.nbytes // LINE) * LINE
        if size > STRETCH // 2:
            return empty(tensor.shape, tensor.dtype).copy_(tensor)
        with _lock:
            if size > len(self._free):
                self._free = empty([STRETCH], torch.uint8)
            place, self._free = self._free[: tensor.nbytes], self._free[size:]
            if not len(self._free):
                self._free = empty([0], torch.uint8)
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)


KINDS = "int8", "int4"
# The packages that read quantised checkpoints, by the method that their config names. For other
# methods transformers itself says which package is missing.
READERS = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel", "accelerate"),
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "compressed-tensors": ("compressed_tensors",),
    "fp8": ("accelerate",),
    "mxfp8": ("accelerate",),
    "torchao": ("torchao", "accelerate"),
    "hqq": ("hqq", "accelerate"),
    "auto-round": ("auto_round",),
}


def options(
    kind: str | None, name: str, config: PreTrainedConfig, device: torch.device
) -> dict[str, Any]:
    """Extra arguments for `from_pretrained`, for weights of this kind.

    Args:
        kind: one of KINDS, or None for weights as they are stored
        name: the model's name, for messages
        config: the model's config
        device: where the weights will be

    Raises:
        InputError: if such weights are not supported, before any are read
    """
    method = method_of(config)
    allowed("quantization", kind, choices=(*KINDS, None))
    if is_gguf(name):
        if kind is not None:
            raise InputError(f"{name} is a GGUF file; leave quantization out.")
        from transformers import GgufConfig

        return {"quantization_config": GgufConfig(dequantize=True)}
    if kind is not None:
        if method is not None:
            raise InputError(f"{name} comes quantised already ({method}); leave quantization out.")
        installed(READERS["torchao"], f"quantization={kind!r} needs")
        if kind not in device_of(device).quantizations:
            raise InputError(
                f"{kind} weights need a CUDA device, and this is {device}; take "
                "quantization='int8'."
            )
        from torchao import quantization
        from transformers import TorchAoConfig

        schemes = quantization.Int8WeightOnlyConfig, quantization.Int4WeightOnlyConfig
        return {"quantization_config": TorchAoConfig(schemes[KINDS.index(kind)]())}
    if method is None:
        return {}
    # It would take the stored numbers for the weights, and mention that only in its log.
    if method not in (*AUTO_QUANTIZATION_CONFIG_MAPPING, "bitsandbytes"):
        raise InputError(
            f"{name} comes quantised in a way that the installed transformers does not know "
            f"({method or 'its config names none'}); name the model that it was made of, or update "
            "transformers."
        )
    installed(READERS.get(method, ()), f"{name} comes quantised ({method}), which needs")
    # Kernels for it would be fetched as binaries when the model is loaded.
    return {"quantization_config": Mxfp4Config(dequantize=True)} if method == "mxfp4" else {}


def method_of(config: PreTrainedConfig) -> str | None:
    """The method by which a checkpoint is quantised; "" if its config names none, None if plain."""
    quantised = getattr(config, "quantization_config", None)
    quantised = quantised or getattr(config.get_text_config(), "quantization_config", None)
    if not quantised:
        return None
    settings = quantised if isinstance(quantised, dict) else vars(quantised)
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return "bitsandbytes"
    method = settings.get("quant_method") or ""
    return str(getattr(method, "value", method))


def is_plain(weight: torch.Tensor) -> bool:
    """Whether a weight is stored as the numbers that it stands for."""
    return type(weight.data) is torch.Tensor


def stored_bytes(weight: torch.Tensor) -> int:
    """Bytes that a weight takes in memory; `nbytes` of a quantised one is that of a plain one."""
    if is_plain(weight) or not hasattr(weight.data, "__tensor_flatten__"):
        return weight.nbytes
    names, _ = weight.data.__tensor_flatten__()
    return sum(stored_bytes(getattr(weight.data, name)) for name in names)


# The weights of larger models are not copied: there memory matters more than time.
COPIED_BYTES = 2**30


def copies_bytes(weight_bytes: int, device: torch.device) -> int:
    """The most bytes that the copies of a pair's weights take on a device.

    Args:
        weight_bytes: bytes of the weights of both models together
        device: where the models are
    """
    return min(weight_bytes, 2 * COPIED_BYTES) if device_of(device).on_host else 0


LINEAR = torch.nn.modules.linear.__file__
FORMATS = {
    torch.float32: NumberType.FLOAT32,
    torch.float16: NumberType.FLOAT16,
    torch.bfloat16: NumberType.BFLOAT16,
}
# The dtypes that oneDNN supports on this CPU.
TYPES: tuple[torch.dtype, ...] = ()
if torch.backends.mkldnn.is_available():
    TYPES = (
        (torch.float32, torch.bfloat16)
        if torch.ops.mkldnn._is_mkldnn_bf16_supported()
        else (torch.float32,)
    )


# Up to this many tokens, divided by the number of threads, kernels multiply outside of a program:
# they read half of the bytes that oneDNN reads, which shares long passes better among threads.
MANY = {torch.float32: LONGEST, torch.bfloat16: 8}


def few(tokens: int, dtype: torch.dtype) -> bool:
    """Whether kernels multiply a pass of so many tokens, if they can read its weights."""
    threads = torch.get_num_threads() if dtype == torch.float32 else 1
    return tokens * threads <= MANY[dtype]


PART = 256  # rows of a weight


def half_of(weight: torch.Tensor) -> tuple[torch.Tensor, float] | None:
    """A weight (out, in) in float16.

    Weights published in bfloat16 have 8 significant bits, and float16 has 11; a power of two brings
    small weights into its range.

    Returns:
        the scaled weight and the factor for products with it; None if float16 loses more of any row
            than float32 rounds off
    """
    exact = weight.detach().float()
    half = torch.empty(exact.shape, dtype=torch.float16, device=exact.device)
    # As in files that hold float16; in parts that stay in the processor's cache.
    parts = zip(half.split(PART), exact.split(PART), strict=True)
    if all(torch.equal(part.copy_(its).float(), its) for part, its in parts):
        return half, 1.0
    largest = float(exact.abs().max())
    for scale in (1.0, 2.0 ** (15 - math.frexp(largest)[1]) if 0 < largest < math.inf else 1.0):
        scaled = exact * scale
        half = scaled.half()
        lost = (half.float() - scaled).norm(dim=1)
        allowed = torch.finfo(torch.float32).eps * scaled.norm(dim=1)
        if bool((lost <= allowed).all()) and bool(half.isfinite().all()):  # norms may be infinite
            return half, 1 / scale
    return None


def held_of(weight: torch.Tensor) -> tuple[torch.Tensor, float] | None:
    """A weight (out, in) as kernels read it, in bfloat16 or as in `half_of`; else None."""
    if weight.dtype != torch.bfloat16 and (half := half_of(weight)) is not None:
        return half
    held = weight.detach().bfloat16()
    return (held, 1.0) if torch.equal(held.to(weight.dtype), weight) else None


class Halves(NamedTuple):
    """A layer for kernels.

    Attributes:
        weight: a copy of its weight in blocks, see `decoders.engine.kernels.tiles`, times a power
            of two in float16, or in bfloat16; or its weight in bfloat16 as it is, (out, in)
        factor: what products with it are multiplied by
        bias: its bias in float32, or None
    """

    weight: torch.Tensor
    factor: float
    bias: torch.Tensor | None

    @property
    def block(self) -> int:
        return self.weight.shape[2] if self.weight.ndim == 3 else 1

    def places(self, begin: int = 0) -> tuple[int, int, int]:
        """The addresses of weight and bias (0 for none), and the weight's NumberType.

        That is a plain number: to look at an enum takes numba longer than a small product takes.

        Args:
            begin: the first output, with which a block begins
        """
        form = FORMATS[self.weight.dtype] if self.weight.ndim == 3 else NumberType.ROWS
        bias = 0 if self.bias is None else self.bias[begin:].data_ptr()
        return self.weight[begin // self.block].data_ptr(), bias, int(form)


class PassLinear(torch.nn.Linear):
    """A linear layer whose product on a CPU is a kernel's or oneDNN's, in float32 and bfloat16.

    The usual float32 product is MKL's, which takes twice as long on AMD. If weights are stored row
    by row, both MKL and oneDNN are far slower than the memory bus. So there is one copy of the
    weights, made when it is first needed: in float16 or bfloat16 if that is exact, for passes of
    few tokens, which kernels multiply several times as fast; otherwise in oneDNN's blocks.

    Attributes:
        copies: whether the weights are copied
        shelf: where the model's copies for kernels are
        copied_bytes: bytes of the copy that exists now
    """

    copies: bool
    shelf: Shelf
    _decoders_copy: Halves | torch.Tensor | None = None

    @property
    def copied_bytes(self) -> int:
        copy = self._decoders_copy
        if copy is None:
            return 0
        return self.weight.nbytes if isinstance(copy, torch.Tensor) else copy.weight.nbytes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return as_one_step(self.product, x)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        if not device_of(x.device).on_host or x.dtype not in TYPES:
            return linear(x, self.weight, self.bias)
        copy = self.copied() if self.copies else self.weight
        if isinstance(copy, torch.Tensor):
            return self._by_onednn(x, copy)
        tokens = x.numel() // self.in_features
        if not few(tokens, x.dtype):
            return self._by_onednn(x, self.weight)
        rows = x.to(torch.float32).contiguous()
        out = rows.new_empty(*x.shape[:-1], self.out_features)
        weights, bias, form = copy.places()
        kernels().multiply(
            rows.data_ptr(), tokens, weights, self.in_features, self.out_features, out.data_ptr(),
            bias, form, copy.factor,
        )  # fmt: skip
        return out.to(x.dtype)

    def _by_onednn(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, self.bias, "none", (), "")

    def for_kernels(self) -> Halves | None:
        """The weights as kernels read them: a copy, or those of bfloat16 as they are."""
        if self.copies:
            copy = self.copied()
            return copy if isinstance(copy, Halves) else None
        weight, bias = self.weight.detach(), self.bias
        if (
            weight.dtype != torch.bfloat16
            or weight.is_inference()
            or not weight.is_contiguous()
            or kernels() is None
            or self.in_features % kernels().parts
        ):
            return None
        return Halves(weight, 1.0, None if bias is None else bias.detach().float().contiguous())

    def copied(self) -> Halves | torch.Tensor:
        """The copy of the weights: for kernels, or in oneDNN's blocks."""
        if (copy := self._decoders_copy) is None:
            held = held_of(self.weight) if kernels() else None
            if held is None:
                copy = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())
            else:
                blocks = self.shelf.put(kernels().in_blocks(held[0]))
                bias = None if self.bias is None else self.bias.detach().float().contiguous()
                copy = Halves(blocks, held[1], bias)
            self._decoders_copy = copy
        return copy


def forget_copies(model: torch.nn.Module) -> None:
    """Forget the copies of a model's weights, which have changed.

    They are made anew when they are next needed.
    """
    for module in model.modules():
        if isinstance(module, PassLinear):
            module._decoders_copy = None


class BytesRead:
    """Bytes of the weights that passes of a model read: of few tokens, copies of half the size.

    Args:
        model: the model, which makes its copies in its first pass
        dtype: of its weights
        whole: bytes of its weights, without the tables of which a pass reads some rows
    """

    def __init__(self, model: torch.nn.Module, dtype: torch.dtype, whole: int):
        self._model, self._dtype, self._whole = model, dtype, whole
        self._few: int | None = None

    def forget(self) -> None:
        """Ask anew what the copies take, which are made anew."""
        self._few = None

    def __call__(self, tokens: int) -> int:
        """The bytes that a pass of so many tokens has read."""
        if self._dtype not in MANY or not few(tokens, self._dtype):
            return self._whole
        if self._few is None:
            layers = [m for m in self._model.modules() if isinstance(m, PassLinear)]
            spared = sum(m.weight.nbytes - m.copied_bytes for m in layers if m.copied_bytes)
            self._few = self._whole - spared
        return self._few


def hasten(model: torch.nn.Module, most_copied: int = COPIED_BYTES) -> None:
    """Turn the plain linear layers of a model into PassLinear.

    Args:
        model: the model, whose weights stay where they are
        most_copied: the most bytes of weights that are copied as well
    """
    if torch.nn.Linear.forward.__code__.co_filename != LINEAR:
        return  # somebody has put another function in its place
    plain: list[Any] = [
        m
        for m in model.modules()
        if type(m) is torch.nn.Linear and "weight" in m._parameters and is_plain(m.weight)
    ]
    size, shelf = sum(module.weight.nbytes for module in plain), Shelf()
    # A change of weights made in inference mode would go unnoticed.
    copies = size <= most_copied and not any(module.weight.is_inference() for module in plain)
    for module in plain:
        module.__class__ = PassLinear
        module.shelf, module.copies = shelf, copies
