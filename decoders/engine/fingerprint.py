"""What a model is at one moment (Fingerprint), a copy that shares its weights (twin), and trials.

Its caller may have put functions into it (patched). A TrialLog keeps which trials it has passed.

A prepared model holds a copy of the modules, programs, and copies of the weights. Everything that
PyTorch documents for changing a module shows here: other modules, hooks, functions in place of
`forward`, attributes, and weights. Fused optimizers and writes into `.data` raise no version, so a
few numbers of each weight are read, spread over it: a step of an optimizer changes all of them, but
for the rows that a table of embeddings has for other tokens. Nothing has a copy of a table, unless
the head shares it, and then every row has a gradient.
"""

import copy
import hashlib
import json
import os
import platform
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from itertools import chain
from operator import is_
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from platformdirs import user_cache_dir
from torch.nn.modules import module as registry
from transformers import PreTrainedConfig, PreTrainedModel

from decoders.devices import device_of
from decoders.engine.kernels.loading import kernels
from decoders.engine.weights import is_plain

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


def twin(model: PreTrainedModel, attention: str) -> PreTrainedModel:
    """Copy a model with its own config, which names another attention, but share its weights.

    The copy shares the model's weights and buffers, and what its caller has put into it: hooks and
    functions. So nothing is switched on and off around a pass, and the caller may use the model in
    another thread at the same time. Rotary frequencies that a pass of the caller's may change
    ("longrope", "dynamic") are not shared.

    Args:
        model: the caller's model
        attention: the name of an attention in the registry of transformers
    """
    shared: dict[int, Any] = {}
    modules = list(model.modules())
    for module in modules:
        held = vars(module)
        shared[id(module._parameters)] = module._parameters
        if not changes_frequencies(module):
            shared[id(module._buffers)] = module._buffers
        whole = [hook for name in HOOKS for hook in held[name].values()]
        if (function := replacement(module)) is not None:
            whole.append(function)
        shared |= {id(each): each for each in whole}
        # Pruning and weight norm leave a weight that an operator has made, which has no copy.
        shared |= {
            id(value): value.detach()
            for value in held.values()
            if isinstance(value, torch.Tensor) and value.grad_fn is not None
        }
    other = copy.deepcopy(model, shared)
    other.config._attn_implementation = attention
    for module, copied in zip(modules, other.modules(), strict=True):
        forward = forward_of(module)
        if "forward" in vars(module) and forward is None:
            del vars(copied)["forward"]  # compiled, it would call the caller's module
        elif bound(forward, module):
            copied.forward = MethodType(forward.__func__, copied)
    return other.eval()


def changes_frequencies(module: torch.nn.Module) -> bool:
    kinds = getattr(module, "rope_type", ())
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(kind == "longrope" or "dynamic" in kind for kind in kinds)


# Of a weight so many lines of a cache are read, about, of so many numbers: one alone is as dear.
LINES, LINE = 8, 16
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
    "_last_compile_config", "_is_hf_initialized", "_decoders_pairs", "_decoders_copy",
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

    def __hash__(self) -> int:
        return id(self.it)


class Numbers(NamedTuple):
    """Weights: where they are, how often they were written to, and some of their numbers.

    Attributes:
        stamps: address, version, shape and strides of each
        read: their numbers, by device, dtype and kind of `span`, as bytes
    """

    stamps: list[tuple]
    read: dict[tuple, torch.Tensor]

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
        weights: list[torch.Tensor] = []
        self._loose: list[torch.Tensor] = []
        for module in modules_of(model):
            self.modules.append(self._module(module, weights))
        self.config += [self._frozen(vars(config)) for config in self._configs]
        self.weights = numbers(weights)
        self.attributes = numbers(self._loose)._replace(stamps=[])
        modules = [module for module, *_ in self.modules]
        strange = (
            self._loose or any(map(changes_frequencies, modules)) or not all(map(plain, weights))
        )
        self._glance = None if strange else Glance(modules, self._configs, weights)
        del self._configs, self._numbers, self._loose

    def _module(self, module: torch.nn.Module, weights: list[torch.Tensor]) -> tuple:
        held, kind = vars(module), type(module)
        rotary = ROTARY if "rope_type" in held and changes_frequencies(module) else ()
        shapes = list[tuple]()
        for each in (held["_parameters"], held["_buffers"]):
            for name, tensor in each.items():
                if tensor is None or name.endswith(rotary or "\0"):
                    continue
                number = self._numbers.setdefault(id(tensor), len(self._numbers))
                shapes.append(
                    (name, number, type(tensor), tensor.shape, tensor.dtype, tensor.device)
                )
                weights.append(tensor)
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
            self._loose.append(value)
            return value.shape, value.dtype, value.device
        if isinstance(value, PreTrainedConfig) and not any(value is c for c in self._configs):
            self._configs.append(value)
        return Same(value)

    def lasts(self) -> bool:
        """Whether the model certainly is what it was, at half the cost of another fingerprint."""
        return (
            self._glance is not None
            and self.config[0] == global_hooks()
            and self._glance.same(self.weights)
        )

    def alike(self, other: "Fingerprint") -> bool:
        """Whether two are of the same model, but perhaps for the numbers of its weights."""
        return (
            self.modules == other.modules
            and self.config == other.config
            and self.attributes.alike(other.attributes)
        )


class Glance:
    """Whether a model is made of the very objects of which it was made, and has the same numbers.

    Args:
        modules, configs: those of the model
        weights: parameters and buffers
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        configs: Sequence[PreTrainedConfig],
        weights: Sequence[torch.Tensor],
    ):
        self._modules, self._holders = modules, [*modules, *configs]
        self._dicts = list(map(vars, self._holders))
        kinds: list[Any] = list(map(type, modules))
        self._forwards: dict[Any, Any] = {kind: kind.forward for kind in kinds}
        self._named: list[dict] = []
        self._others: list[Collection] = []
        for number, held in enumerate(self._dicts):
            self._add(held, PASSED_OVER if number < len(modules) else ())
        for held in self._dicts[: len(modules)]:
            self._named += [held["_modules"], *(held[name] for name in HOOKS)]
        # Of tensors no reference is kept, which would hold their memory.
        self._tensors = [
            held[name]
            for held in self._dicts[: len(modules)]
            for name in ("_parameters", "_buffers")
        ]
        self._counted = [*self._named, *self._others, *self._tensors]
        self._named = list(filter(None, self._named))  # that the others are empty, sizes tell
        self._spans = list(map(span, weights))
        self._before = self._sizes(), list(self._objects())
        self._lines = lines(weights, self._spans)

    def _add(self, container: Collection, without: Collection[str] = ()) -> None:
        """Note a container, and the containers in it but for those of some names."""
        if isinstance(container, dict):
            self._named.append(container)
            inner = [value for name, value in container.items() if name not in without]
        else:
            self._others.append(container)
            inner = list(container)
        for value in inner:
            if isinstance(value, (dict, list, tuple, set, frozenset)):
                self._add(value)

    def _sizes(self) -> list:
        """What tells the same numbers, names and addresses."""
        return [
            *map(len, self._counted),
            *chain.from_iterable(self._tensors),
            *map(id, chain.from_iterable(map(dict.values, self._tensors))),
        ]

    def _objects(self) -> Iterator:
        """All that is compared by identity, as many as `_sizes` tells."""
        return chain(
            map(type, self._modules),
            chain.from_iterable(self._named),
            chain.from_iterable(map(dict.values, self._named)),
            chain.from_iterable(self._others),
        )

    def same(self, weights: Numbers) -> bool:
        sizes, objects = self._before
        return (
            all(map(is_, map(vars, self._holders), self._dicts))
            and all(kind.forward is forward for kind, forward in self._forwards.items())
            and self._sizes() == sizes
            and all(map(is_, self._objects(), objects))
            and self._same_numbers(weights)
        )

    def _same_numbers(self, weights: Numbers) -> bool:
        values = chain.from_iterable(map(dict.values, self._tensors))
        tensors = [tensor for tensor in values if tensor is not None]
        if list(map(stamp, tensors)) != weights.stamps:
            return False
        if self._lines:
            return kernels().alike(*self._lines)
        some = dict[tuple, list[torch.Tensor]]()
        with torch.inference_mode():
            for tensor, place in zip(tensors, self._spans, strict=True):
                line = tensor.as_strided(*place)
                some.setdefault((tensor.device, tensor.dtype, line.dim()), []).append(line)
            return Numbers([], joined(some)).alike(weights._replace(stamps=[]))


def lines(
    weights: Sequence[torch.Tensor], spans: Sequence[tuple]
) -> tuple[np.ndarray, np.ndarray] | None:
    """What `span` says of weights on the host, for kernels: they wait for many lines at once.

    Returns:
        the address of each line and its bytes (n, 2), and all bytes one after another
    """
    if not weights or not all(device_of(each.device).on_host for each in weights) or not kernels():
        return None
    places, numbers = list[tuple[int, int]](), list[torch.Tensor]()
    with torch.inference_mode():
        for tensor, (sizes, strides) in zip(weights, spans, strict=True):
            begin, item = tensor.data_ptr(), tensor.itemsize
            for row in range(sizes[0] if len(sizes) > 1 else 1):
                places.append((begin + row * strides[0] * item, sizes[-1] * item))
            numbers.append(tensor.as_strided(sizes, strides).flatten().view(torch.uint8))
        return np.array(places), torch.cat(numbers).numpy()


def modules_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    found = {id(model): model}
    modules = [model]
    for module in modules:  # which grow, layer by layer
        for inner in vars(module)["_modules"].values():
            if inner is not None and id(inner) not in found:
                found[id(inner)] = inner
                modules.append(inner)
    return modules


def numbers(tensors: Sequence[torch.Tensor]) -> Numbers:
    """Read a few numbers of each tensor."""
    stamps, lines = list[tuple](), dict[tuple, list[torch.Tensor]]()
    with torch.inference_mode():
        for whole in tensors:
            for tensor in parts(whole):
                if not readable(tensor):
                    stamps.append((id(tensor),))
                    continue
                stamps.append(stamp(tensor))
                if tensor.numel():
                    line = tensor.as_strided(*span(tensor))
                    lines.setdefault((tensor.device, tensor.dtype, line.dim()), []).append(line)
        return Numbers(stamps, joined(lines))


def plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of plain numbers, and has some."""
    return readable(tensor) and tensor.numel() > 0 and not hasattr(tensor, "__tensor_flatten__")


def readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta


def stamp(tensor: torch.Tensor) -> tuple:
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version, tensor.shape, tensor.stride()


def joined(lines: dict[tuple, list[torch.Tensor]]) -> dict[tuple, torch.Tensor]:
    return {kind: torch.cat(each).view(torch.uint8) for kind, each in lines.items()}


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors of plain numbers in a tensor, which may be quantised."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from parts(getattr(tensor, name))
    else:
        yield tensor


def span(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which numbers of a tensor are read, as sizes and strides: lines, or all of a small one.

    A distance is never whole rows, which would always meet the same columns.
    """
    most, width = tensor.numel(), tensor.shape[-1] if tensor.dim() else 1
    if not tensor.is_contiguous():
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        most = 1 + sum((size - 1) * stride for size, stride in sizes)
    if most <= LINES * LINE:
        return (most,), (1,)
    step = (most - LINE) // (LINES - 1)
    if rows := step // width:
        step = rows * width - width * 3 // 8
    step = max(LINE, step // LINE * LINE)
    return ((most - LINE) // step + 1, LINE), (step, 1)


LIBRARIES = "torch", "transformers", "numpy", "numba", "llvmlite"
SWITCHES = "ATEN_", "DNNL_", "KMP_", "MKL_", "NUMBA_", "OMP_", "ONEDNN_", "TORCH_"
MOST = 200  # files


class TrialLog:
    """Which trials of a model have been passed here, where they take longer than all else.

    A trial compares passes with others that compute the same in another way. It is not repeated for
    the same weights, config, code, libraries, processor, threads and switches. One that has failed
    is.

    Args:
        facts: all that decides how the model computes
        folder: gets an empty file for each trial that has been passed; if it cannot be written to,
            the trial is made each time
    """

    def __init__(self, facts: str, folder: Path):
        self._facts, self._folder = facts, folder

    def _file(self, trial: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._facts}\n{trial}".encode()).hexdigest()

    def passed(self, trial: str) -> bool:
        return self._file(trial).is_file()

    def note(self, trial: str) -> None:
        """Note that a trial has been passed."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file(trial).touch()
            every = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime)
            for old in every[:-MOST]:
                old.unlink(missing_ok=True)


def trials_of(
    model: PreTrainedModel, passes: str, most: int, folder: Path | None = None
) -> TrialLog | None:
    """The trials of a model that has just been loaded; None if they are to be made each time.

    Args:
        model: the model
        passes: how it runs, see `load_pair`
        most: bytes of weights whose reading takes less than the trials
        folder: see `TrialLog`; by default one of the user's cache
    """
    weights = model.state_dict().values()
    if not all(map(is_plain, weights)):  # the numbers of quantised ones are not read
        return None
    size = sum(weight.nbytes for weight in weights)
    if not device_of(model.device).on_host or size > most or patched(model):
        return None
    folder = folder or Path(user_cache_dir("decoding-workbench", appauthor=False)) / "trials"
    return TrialLog("\n".join((*_machine(), passes, *_of_model(model))), folder)


def _machine() -> Iterator[str]:
    sources = [file for file in _sources(files("decoders")) if file.name.endswith(".py")]
    code = b"".join(file.read_bytes() for file in sorted(sources, key=str))
    yield hashlib.sha256(code).hexdigest()
    yield from (f"{name} {_version(name)}" for name in LIBRARIES)
    yield f"{platform.python_version()} {platform.platform()} {torch.get_num_threads()}"
    yield torch.backends.cpu.get_cpu_capability()
    with suppress(ImportError):
        from llvmlite import binding

        yield f"{binding.get_host_cpu_name()} {sorted(binding.get_host_cpu_features().items())}"
    yield from sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(SWITCHES))


def _sources(folder: Any) -> Iterator[Any]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _sources(each)
        else:
            yield each


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _of_model(model: PreTrainedModel) -> Iterator[str]:
    yield json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    yield f"{model.config._attn_implementation} {device_of(model.device).products()}"
    # Its code may be another than the library's, if somebody has put it there.
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        code = getattr(kind.forward, "__code__", None)
        yield f"{kind} {code and (code.co_filename, code.co_firstlineno)}"
    for name, tensor in model.state_dict().items():
        numbers = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)} {zlib.crc32(numbers)}"
