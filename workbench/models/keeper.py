"""The model pair in memory, how another takes its place, and the environment of its figures."""

import gc
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import GatedRepoError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from decoders import (
    Head,
    InputError,
    ModelPair,
    default_device,
    default_dtype,
    load_pair,
    parameters,
)
from decoders.devices import device_of
from decoders.errors import quoted
from decoders.process import assets
from workbench.models import presets
from workbench.models.presets import PairChoice

# Otherwise transformers asks a service of the hub to convert pickled weights, and loads the result
# instead of the named files.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
# Bytes per parameter of models of a billion parameters and more, with scales and with embeddings
# that are not quantised.
QUANTISED_BYTES = {"int8": 1.25, "int4": 0.75}


def load(choice: PairChoice, custom_allowed: bool = True, public: bool = False) -> ModelPair:
    """The pair of a choice.

    A model's own code is never run, and a pair that is not a preset is read from safetensors only,
    or from GGUF files of this machine. Strangers read what everybody may read on the hub, and no
    files of this machine.

    Args:
        custom_allowed: whether the pair may be other than a preset
        public: whether strangers share this device

    Raises:
        InputError: in one sentence, if the pair is not a preset and `custom_allowed` is false, if
            it does not fit in memory, if its owner must be asked first, if there is no such model,
            or if it cannot be run
    """
    if choice.preset is None and not custom_allowed:
        raise InputError(
            "Only the listed model pairs may be loaded on this Space; its owner can set "
            "ALLOW_CUSTOM_MODELS=1."
        )
    token: bool | None = None  # the machine's own
    if public and choice.preset is None:
        token = False
        for name in filter(None, (choice.target, choice.draft)):
            _must_be_of_the_hub(name)
    device = default_device() if choice.device == "auto" else _device(choice.device)
    dtype = default_dtype(device) if choice.dtype == "auto" else choice.dtype
    kind = getattr(torch, str(dtype).removeprefix("torch."), None)
    try:
        # The embedded target is small.
        if isinstance(kind, torch.dtype) and choice.target is not None:
            _must_fit(choice, device, kind, token)
        return load_pair(
            choice.target,
            choice.draft,
            device=device,
            dtype=dtype,
            safetensors=None if choice.preset else True,
            quantization=choice.quantization,
            token=token,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise InputError(
            f"{choice.title} does not fit in the memory of {device}; take a smaller pair or "
            "another dtype."
        ) from None
    except InputError as error:
        if not _is_gated(error):
            raise
        if token is False:
            raise InputError(
                f"{choice.title} is gated, and this Space loads what everybody may read; duplicate "
                "the Space, or run the workbench on a machine of your own."
            ) from error
        raise InputError(
            f"{choice.title} is gated: accept its licence on its page at huggingface.co, and give "
            "the token of your account with `hf auth login` or in the variable HF_TOKEN (on a "
            "Space: Settings, Secrets)."
        ) from error


def _must_fit(
    choice: PairChoice, device: torch.device, dtype: torch.dtype, token: bool | None
) -> None:
    size = parameters(choice.target, choice.draft, token) * dtype.itemsize
    quantised = QUANTISED_BYTES.get(choice.quantization or "", dtype.itemsize)
    size = round(size * min(1.0, quantised / dtype.itemsize))
    if not presets.fits(size, device):
        raise InputError(
            f"{choice.title} does not fit: its weights take {presets.shown_bytes(size)} in "
            f"{str(dtype).removeprefix('torch.')} and {device} has "
            f"{presets.shown_bytes(presets.available_bytes(device) or 0)} free; take a smaller "
            "pair or another dtype."
        )


def _must_be_of_the_hub(name: str) -> None:
    id = name.partition("@")[0]
    try:
        validate_repo_id(id)
    except HFValidationError:
        raise InputError(
            f"{quoted(name)} is no model of the hub; take a name such as organisation/model."
        ) from None
    if Path(id).exists():
        kind = "folder" if Path(id).is_dir() else "file"
        raise InputError(f"{quoted(name)} is a {kind}; name a model of the hub here.")


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):
        raise InputError(f"There is no device {quoted(name)} here; take 'auto' or 'cpu'.") from None


def _is_gated(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, GatedRepoError):
        error = error.__cause__ or error.__context__
    return error is not None


class PairError(InputError):
    """A pair that cannot be used; its message is the reason."""


class PairKeeper:
    """Keeps one pair loaded.

    Visitors may choose different ones; the device's queue serves one visitor at a time.

    Args:
        custom_allowed: whether pairs outside the presets may be loaded
        public: whether strangers share the device: they read what everybody may read
        loader: loads a choice, by default `load`
    """

    def __init__(
        self,
        custom_allowed: bool = True,
        public: bool = False,
        loader: Callable[[PairChoice, bool, bool], ModelPair] | None = None,
    ) -> None:
        self._custom_allowed, self._public, self._loader = custom_allowed, public, loader
        self._loaded: tuple[PairChoice, ModelPair] | None = None

    def get(self, choice: PairChoice) -> ModelPair:
        """The chosen pair, loaded if another is in memory; one thread may call it.

        Raises:
            PairError: with the reason, if it cannot be used; the one in memory then stays
        """
        if (pair := self.peek(choice)) is None:
            try:
                loader = load if self._loader is None else self._loader
                pair = loader(choice, self._custom_allowed, self._public)
            except InputError as error:
                raise PairError(str(error)) from error
            self._loaded = choice, pair
            # The memory of the pair before is freed now, not when Python next looks for rings of
            # references.
            gc.collect()
        return pair

    def peek(self, choice: PairChoice) -> ModelPair | None:
        """The chosen pair if it is in memory.

        Nothing is loaded, and the call does not wait for a pair that is being loaded.
        """
        loaded = self._loaded
        return loaded[1] if loaded is not None and loaded[0] == choice else None


@dataclass(frozen=True, slots=True)
class Threads:
    count: int
    reason: str


def environment(pair: ModelPair, threads: Threads | None = None) -> dict[str, Any]:
    """Device, dtype, versions and models as plain data.

    Of the machine's `cpus`, torch may use `threads`; the reason is known if these were chosen.
    """
    device = pair.target.device
    return {
        "target": _model(pair, "target"),
        "draft": _model(pair, "draft") if pair.draft is not None else None,
        **({"head": _model(pair, "head")} if pair.head not in (None, pair.draft) else {}),
        "device": str(device),
        "device_name": device_of(device).name or _processor(),
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "threads": threads.count if threads else torch.get_num_threads(),
        **({"threads_reason": threads.reason} if threads else {}),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **(
            {"draft_knows": f"{pair.known:.0%} of the target's tokens"}
            if not pair.one_tokenizer
            else {}
        ),
        **{name: version(name) for name in ("torch", "transformers")},
    }


def _model(pair: ModelPair, role: str) -> dict[str, Any]:
    """One model of the pair.

    `pass_bytes` are those that a pass reads, without embedding tables, of which it reads some rows.
    `copied_bytes` is the size of a second copy of some weights, in an order that makes products
    faster. Of a head, `reads` are the target's layers whose states it reads, of `layers`.
    """
    model, runs = getattr(pair, role), pair.packed[role]
    name, revision, kind = (
        (model.source, None, model.kind)
        if isinstance(model, Head)
        else (
            model.config.name_or_path,
            getattr(model.config, "_commit_hash", None),
            model.config.model_type,
        )
    )
    config = pair.target.config.get_text_config()
    return {
        **(
            {"reads": list(model.reads), "layers": config.num_hidden_layers}
            if isinstance(model, Head)
            else {}
        ),
        "name": _short(name) or type(model).__name__,
        "revision": revision,
        "type": kind,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": sum(p.nbytes for p in model.parameters()),
        "pass_bytes": runs.weight_bytes,
        "engine": runs.engine_name,
        "copied_bytes": runs.copied_bytes or None,
    }


def _short(name: str) -> str:
    for folder, ours in (("stories", "Llama-Stories"), ("smollm2", "Llama-SmolLM2")):
        within = f"{assets() / folder}{os.sep}"
        if name.startswith(within):
            return f"{ours} {name.removeprefix(within)}"
    return name


def _processor() -> str:
    """The CPU's model name; `platform.processor()` is empty on most Linux systems."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
