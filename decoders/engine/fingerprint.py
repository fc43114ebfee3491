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
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, NoneType
from typing import Any, TypeGuard

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
            yield from (
                each for each in own.items() if getattr(each[1], "__name__", "") not in IDLE
            )


def global_hooks() -> list[tuple[int, Callable]]:
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
        functions = [hook for name in HOOKS for hook in held[name].values()]
        shared |= {id(each): each for each in (*functions, replacement(module))}
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
PLAIN = {torch.Tensor, torch.nn.Parameter}  # whose numbers are not in parts
# What a pass of the caller's writes into rotary embeddings whose frequencies it changes.
ROTARY = "inv_freq", "max_seq_len_cached", "attention_scaling"


class Fingerprint:
    """What a model is at one moment.

    Args:
        model: the model
    """

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._form, weights, others = form_of(model)
        # Of tensors no reference is kept, which would hold their memory.
        self._stamps, self._lines = list(map(stamp, weights)), lines(weights)
        self._weights = {} if self._lines else numbers(weights)
        self._others = numbers(others)

    def change(self) -> str:
        """What is different now: "form", or else "weights", the numbers of weights; or nothing."""
        form, weights, others = form_of(self._model)
        if form != self._form or not alike(numbers(others), self._others):
            return "form"
        if list(map(stamp, weights)) != self._stamps:
            return "weights"
        same = (
            kernels().alike(*self._lines) if self._lines else alike(numbers(weights), self._weights)
        )
        return "" if same else "weights"


def form_of(model: torch.nn.Module) -> tuple[list[Any], list[torch.Tensor], list[torch.Tensor]]:
    """What is compared of a model.

    Returns:
        the hooks of all modules; each module with its class, its class's `forward`, its hooks, its
            attributes, its parts, and the kinds of its weights; the contents of configs
        weights: parameters and buffers
        other tensors, of which a twin has copies
    """
    configs: list[PreTrainedConfig] = []
    weights: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    places: dict[int, int] = {}  # by weight: two modules may share one

    def of_module(module: torch.nn.Module) -> tuple:
        held, kind = vars(module), type(module)
        rotary = ROTARY if "rope_type" in held and changes_frequencies(module) else ()
        kinds: list[tuple] = []
        for name, tensor in (*held["_parameters"].items(), *held["_buffers"].items()):
            if tensor is not None and not (rotary and name.endswith(rotary)):
                place = places.setdefault(id(tensor), len(places))
                kinds.append((name, place, type(tensor), tensor.shape, tensor.dtype, tensor.device))
                if type(tensor) in PLAIN:
                    weights.append(tensor)
                else:
                    weights.extend(parts(tensor))
        attributes = {
            name: value if type(value) in ATOMS else frozen(value, configs, others)
            for name, value in held.items()
            if name not in PASSED_OVER and not (rotary and name.endswith(rotary))
        }
        hooked = any(map(held.__getitem__, HOOKS))  # as few are
        own = [*hooks(held)] if hooked else [], forward_of(module) if "forward" in held else None
        return module, kind, kind.forward, own, attributes, [*held["_modules"].items()], kinds

    form: list[Any] = [global_hooks(), *map(of_module, modules_of(model))]
    for config in configs:  # which grow meanwhile
        form.append((config, frozen(vars(config), configs, others)))
    return form, weights, others


def modules_of(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Each module once, in half the time of `torch.nn.Module.modules`."""
    modules = {id(model): model}
    waiting = [model]
    while waiting:
        yield (module := waiting.pop())
        for part in vars(module)["_modules"].values():
            if part is not None and id(part) not in modules:
                modules[id(part)] = part
                waiting.append(part)


def frozen(value: Any, configs: list[PreTrainedConfig], others: list[torch.Tensor]) -> Any:
    """What of an attribute is compared: contents of containers and configs, else identity.

    Configs and tensors in it join `configs` and `others`.
    """
    if type(value) in ATOMS:
        return value
    if isinstance(value, PreTrainedConfig):
        if not any(value is config for config in configs):
            configs.append(value)
        return id(value)
    if isinstance(value, dict):
        return {key: frozen(each, configs, others) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [frozen(each, configs, others) for each in value]
    if isinstance(value, (set, frozenset)):
        return set(value)
    if isinstance(value, torch.Tensor):
        others.extend(parts(value))
        return value.shape, value.dtype, value.device
    return id(value), value  # as long as it is kept, no other object has its id


def parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors of plain numbers in a tensor, which may be quantised."""
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from parts(getattr(tensor, name))
    else:
        yield tensor


def readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0


def stamp(tensor: torch.Tensor) -> tuple:
    """Where a tensor is, and how often it was written to, as far as PyTorch knows."""
    if not readable(tensor):
        return (id(tensor),)
    version = 0 if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), version, tensor.stride()


def numbers(tensors: Sequence[torch.Tensor]) -> dict[tuple, torch.Tensor]:
    """A few numbers of each tensor, by device, dtype and kind of `span`, as bytes."""
    some: dict[tuple, list[torch.Tensor]] = defaultdict(list)
    with torch.inference_mode():
        for tensor in filter(readable, tensors):
            line = tensor.as_strided(*span(tensor))
            some[tensor.device, tensor.dtype, line.dim()].append(line)
        return {kind: torch.cat(each).view(torch.uint8) for kind, each in some.items()}


def alike(some: dict[tuple, torch.Tensor], others: dict[tuple, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(
        torch.equal(each, others[kind]) for kind, each in some.items()
    )


def lines(tensors: Sequence[torch.Tensor]) -> tuple[np.ndarray, np.ndarray] | None:
    """The same of tensors on the host, for kernels, which wait for many lines at once.

    Returns:
        the address of each line and its bytes (n, 2), and all bytes one after another
    """
    on_host = all(device_of(each.device).on_host and readable(each) for each in tensors)
    if not tensors or not on_host or not kernels():
        return None
    places, bits = list[tuple[int, int]](), list[torch.Tensor]()
    with torch.inference_mode():
        for tensor in tensors:
            sizes, strides = span(tensor)
            begin, item = tensor.data_ptr(), tensor.itemsize
            for row in range(sizes[0] if len(sizes) > 1 else 1):
                places.append((begin + row * strides[0] * item, sizes[-1] * item))
            bits.append(tensor.as_strided(sizes, strides).flatten().view(torch.uint8))
        return np.array(places), torch.cat(bits).numpy()


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
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file(trial).touch()


def trials_of(model: PreTrainedModel, passes: str, folder: Path | None = None) -> TrialLog | None:
    """The trials of a model that has just been loaded; None if they are to be made each time.

    Args:
        model: the model
        passes: how it runs, see `load_pair`
        folder: see `TrialLog`; by default one of the user's cache
    """
    readable = all(map(is_plain, model.state_dict().values()))  # as quantised weights are not
    if not readable or not device_of(model.device).on_host or patched(model) or not kernels():
        return None
    folder = folder or Path(user_cache_dir("decoding-workbench", appauthor=False)) / "trials"
    return TrialLog("\n".join((passes, *_facts_of(model))), folder)


def _facts_of(model: PreTrainedModel) -> Iterator[str]:
    from llvmlite import binding

    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    yield hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    yield from (f"{name} {version(name)}" for name in LIBRARIES)
    yield f"{platform.python_version()} {platform.platform()} {torch.get_num_threads()}"
    yield torch.backends.cpu.get_cpu_capability()
    yield f"{binding.get_host_cpu_name()} {sorted(binding.get_host_cpu_features().items())}"
    yield from sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(SWITCHES))
    yield json.dumps(model.config.to_dict(), sort_keys=True, default=str)
    yield f"{model.config._attn_implementation} {device_of(model.device).products()}"
    # Its code may be another than the library's, if somebody has put it there.
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        code = getattr(kind.forward, "__code__", None)
        yield f"{kind} {code and (code.co_filename, code.co_firstlineno)}"
    for name, tensor in model.state_dict().items():
        numbers = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
        yield f"{name} {tensor.dtype} {tuple(tensor.shape)} {zlib.crc32(numbers)}"
