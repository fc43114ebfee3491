"""What a model is at one moment (Fingerprint), for its caller may change it between two runs.

A prepared model holds a copy of the modules, programs, and copies of the weights. Everything
that PyTorch documents for changing a module shows here: other modules, hooks, functions in place of
`forward`, attributes, and weights. Fused optimizers and writes into `.data` raise no version, so a
few numbers of each weight are read, spread over it: a step of an optimizer changes all of them. Of
a table of embeddings every row is read once, for a step may leave the rows of other tokens alone.
"""

from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig

from decoders.engine.models.twin import changes_frequencies
from decoders.engine.patches import forward_of, global_hooks, hooks

READ = 16  # numbers of a weight, about
# Values that are equal if they are the same to a pass.
ATOMS = {
    NoneType, bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size,
    FunctionType, BuiltinFunctionType, MethodType,
}  # fmt: skip
# Attributes that have no part in a pass, or are compared by their contents.
PASSED_OVER = vars(torch.nn.Module()).keys() | {
    "forward", "generation_config", "prepare_inputs_for_generation", "gradient_checkpointing",
    "_gradient_checkpointing_func", "_require_grads_hook", "_require_grads_hooks",
    "_output_capturing_hooks_installed", "_compiled_call", "_compiled_call_impl",
    "_last_compile_config", "_is_hf_initialized", "_decoders_pairs",
}  # fmt: skip
# What a pass of the caller's writes into rotary embeddings whose frequencies it changes.
ROTARY = "inv_freq", "max_seq_len_cached", "attention_scaling"


class Same:
    """An object that is equal to itself alone."""

    __slots__ = ("it",)

    def __init__(self, it: Any):
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it

    __hash__ = None  # type: ignore[assignment]  # it is compared in lists alone


class Numbers(NamedTuple):
    """Weights: where they are, how often they were written to, and some of their numbers.

    Attributes:
        stamps: address and version of each
        read: their numbers, by device and dtype, as bytes
    """

    stamps: list[tuple[int, int]]
    read: dict[tuple[torch.device, torch.dtype], torch.Tensor]

    def alike(self, other: "Numbers") -> bool:
        return self.stamps == other.stamps and all(
            torch.equal(read, other.read[kind]) for kind, read in self.read.items()
        )


class Fingerprint:
    """What a model is now.

    Attributes:
        modules: the modules, each with its class, its class's `forward`, its hooks, its attributes
            and the shapes of its weights
        config: the contents of the configs, and the hooks of all modules
        attributes: tensors that are neither parameters nor buffers, of which a twin has copies
        weights: parameters and buffers
    """

    def __init__(self, model: torch.nn.Module):
        self.modules: list[tuple] = []
        self.config: list[Any] = [global_hooks()]
        self._configs: list[PreTrainedConfig] = []  # which grows while they are read
        self._numbers: dict[int, int] = {}  # by weight: two places may share one
        weights: list[tuple[torch.Tensor, bool]] = []
        self._loose: list[tuple[torch.Tensor, bool]] = []
        for module in modules_of(model):
            self.modules.append(self._module(module, weights))
        self.config += [self._frozen(vars(config)) for config in self._configs]
        with torch.inference_mode():
            self.weights = numbers(weights)
            self.attributes = numbers(self._loose)._replace(stamps=[])
        del self._configs, self._numbers, self._loose

    def _module(self, module: torch.nn.Module, weights: list[tuple[torch.Tensor, bool]]) -> tuple:
        held, kind = vars(module), type(module)
        rotary = ROTARY if "rope_type" in held and changes_frequencies(module) else ()
        table, shapes = isinstance(module, torch.nn.Embedding), list[tuple]()
        for each in (held["_parameters"], held["_buffers"]):
            for name, tensor in each.items():
                if tensor is None or name.endswith(rotary or "\0"):
                    continue
                number = self._numbers.setdefault(id(tensor), len(self._numbers))
                shapes.append(
                    (name, number, type(tensor), tensor.shape, tensor.dtype, tensor.device)
                )
                weights.append((tensor, table))
        attributes = {
            name: value if type(value := held[name]) in ATOMS else self._frozen(value)
            for name in held.keys() - PASSED_OVER
            if not (rotary and name.endswith(rotary))
        }
        own = list(hooks(held)), forward_of(module) if "forward" in held else None
        return module, kind, kind.forward, own, attributes, shapes

    def _frozen(self, value: Any) -> Any:
        """What of an attribute is compared: contents of containers and configs, else identity."""
        if type(value) in ATOMS:
            return value
        if isinstance(value, dict):
            return {key: self._frozen(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._frozen(each) for each in value]
        if isinstance(value, (set, frozenset)):
            return value.copy()
        if isinstance(value, torch.Tensor):
            self._loose.append((value, False))
            return value.shape, value.dtype, value.device
        if isinstance(value, PreTrainedConfig) and not any(value is c for c in self._configs):
            self._configs.append(value)
        return Same(value)

    def alike(self, other: "Fingerprint") -> bool:
        """Whether two are of the same model, but perhaps for the numbers of its weights."""
        return (
            self.modules == other.modules
            and self.config == other.config
            and self.attributes.alike(other.attributes)
        )


def modules_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    found = {id(model): model}
    modules = [model]
    for module in modules:  # which grow, layer by layer
        for inner in vars(module)["_modules"].values():
            if inner is not None and id(inner) not in found:
                found[id(inner)] = inner
                modules.append(inner)
    return modules


def numbers(tensors: list[tuple[torch.Tensor, bool]]) -> Numbers:
    """Read a few numbers of each tensor; of those that are tables, one of each row."""
    stamps, lines = list[tuple[int, int]](), dict[tuple, list[torch.Tensor]]()
    for whole, table in tensors:
        for tensor in parts(whole):
            if tensor.layout is not torch.strided or tensor.is_meta:
                stamps.append((id(tensor), 0))
                continue
            version = 0 if tensor.is_inference() else tensor._version
            stamps.append((tensor.data_ptr(), version))
            if tensor.numel():
                lines.setdefault((tensor.device, tensor.dtype), []).append(line(tensor, table))
    return Numbers(
        stamps, {kind: torch.cat(each).view(torch.uint8) for kind, each in lines.items()}
    )


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors of plain numbers in a tensor, which may be quantised."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from parts(getattr(tensor, name))
    else:
        yield tensor


def line(tensor: torch.Tensor, table: bool) -> torch.Tensor:
    """Numbers of a tensor at even distances: of each row one, or `READ` in all, about.

    A distance is never whole rows, which would always meet the same columns.
    """
    span, width = tensor.numel(), tensor.shape[-1] if tensor.dim() else 1
    if not tensor.is_contiguous():
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        span = 1 + sum((size - 1) * stride for size, stride in sizes)
    step, rows = span // READ, span // READ // width
    if table:
        step = width - 1
    elif rows:
        step = rows * width - width * 3 // 8
    step = max(1, step)
    return tensor.as_strided(((span - 1) // step + 1,), (step,))
