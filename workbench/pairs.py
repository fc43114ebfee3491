"""Loading a pair by the rules of the place: what may be loaded, whether it fits, and what to do where it may not or does not."""

import os
from pathlib import Path

import torch
from huggingface_hub.errors import GatedRepoError
from transformers import AutoConfig, AutoModelForCausalLM

from decoders import InputError, ModelPair, load_pair
from workbench.presets import EMBEDDED, PAIRS, PairPreset

# transformers asks a service of the hub to convert pickled weights and would load what that made: only what was named is loaded.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")

CACHE_BYTES = 2**30  # left for caches and activations next to the weights
SIZES = (("GB", 1e9), ("MB", 1e6))


def on_spaces() -> bool:
    """Whether this is a Hugging Face Space, where strangers press the buttons."""
    return os.environ.get("SYSTEM") == "spaces" or "SPACE_ID" in os.environ


def custom_allowed() -> bool:
    """Whether models other than the presets may be loaded: at home, or where the owner of a Space says so."""
    return os.environ.get("ALLOW_CUSTOM_MODELS") == "1" or not on_spaces()


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device, None where it does not tell; on the CPU the container's limit counts as well."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    found = [_meminfo(), _container()]
    return min((f for f in found if f is not None), default=None)


def fits(preset: PairPreset, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether its weights leave room for the caches on this device. The embedded pair always does."""
    free = available_bytes(device)
    return preset is EMBEDDED or free is None or preset.weight_bytes(dtype) + CACHE_BYTES <= free


def default_dtype(device: torch.device) -> torch.dtype:
    """What "auto" means to `load_pair`."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def load_preset(name: str, *, device: str | None = None, dtype: str = "auto") -> ModelPair:
    """Raises InputError where there is no such preset, it does not fit, or its owner must be asked first."""
    if name not in PAIRS:
        raise InputError(f"There is no model pair {name!r}: there is {', '.join(PAIRS)}.")
    preset = PAIRS[name]
    if preset.target is None:
        return load_pair(device=device, dtype=dtype)
    where, kind = _place(device, dtype)
    _must_fit(name, preset.weight_bytes(kind), where, kind)
    return _load(preset.target.source, preset.draft.source, device=device, dtype=dtype, safetensors=None)


def load_custom(target: str, draft: str | None = None, *, device: str | None = None, dtype: str = "auto") -> ModelPair:
    """A pair by hub ids or folders; safetensors only. Raises InputError where that is not allowed, and as `load_preset` does."""
    if not custom_allowed():
        raise InputError(
            "Only the listed model pairs may be loaded on this Space; its owner can set ALLOW_CUSTOM_MODELS=1."
        )
    names = [n.strip() for n in (target, draft) if n and n.strip()]
    if not names:
        raise InputError("No target model is named; give a hub id such as org/model, or a folder.")
    where, kind = _place(device, dtype)
    if not (len(names) == 1 and (Path(names[0]) / "target").is_dir()):
        _must_fit(" + ".join(names), sum(_parameters(n) for n in names) * kind.itemsize, where, kind)
    return _load(*names, device=device, dtype=dtype, safetensors=True)


def shown_bytes(count: float) -> str:
    return next((f"{count / size:.1f} {unit}" for unit, size in SIZES if count >= size), f"{count:.0f} bytes")


def _place(device: str | None, dtype: str) -> tuple[torch.device, torch.dtype]:
    try:
        where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise InputError(f"There is no device {device!r}; take 'cpu' or 'cuda'.") from None
    found = default_dtype(where) if dtype == "auto" else getattr(torch, dtype, None)
    return where, found if isinstance(found, torch.dtype) else torch.float32  # load_pair refuses what is none


def _must_fit(name: str, weights: int, device: torch.device, dtype: torch.dtype) -> None:
    free = available_bytes(device)
    if free is not None and weights + CACHE_BYTES > free:
        raise InputError(
            f"{name} does not fit: its weights take {shown_bytes(weights)} in {str(dtype).removeprefix('torch.')} and {device} "
            f"has {shown_bytes(free)} free; take a smaller pair or another dtype."
        )


def _parameters(name: str) -> int:
    """Of a model that is not loaded yet, by building it without memory; 0 where that cannot be told, and loading says why."""
    name, _, revision = name.partition("@")
    try:
        config = AutoConfig.from_pretrained(name, revision=revision or "main", trust_remote_code=False)
        with torch.device("meta"):
            return sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    except Exception:
        return 0


def _load(*names: str, **options) -> ModelPair:
    try:
        return load_pair(*names, **options)
    except torch.OutOfMemoryError:
        raise InputError(
            f"{' + '.join(names)} does not fit in the device's memory; take a smaller pair or another dtype."
        ) from None
    except InputError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, GatedRepoError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise InputError(
            f"{' or '.join(names)} is gated: accept its licence on its page at huggingface.co, and give the token of your account "
            "with `hf auth login` or in the variable HF_TOKEN (on a Space: Settings, Secrets)."
        ) from error


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def _container() -> int | None:
    """What the cgroup (version 2) leaves; None where it sets no limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        return None if limit == "max" else int(limit) - int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None
