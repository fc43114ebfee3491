"""Model pairs by name, the memory that they need, and the settings that are kept with them.

A folder with `target/` may hold settings as `settings.json`, which `python -m tools.tune` writes,
and so has SmolLM2's in this package:

    {"speculative": {"draft_length": 3}, "dsbd": [{"draft_beams": 4}, {"draft_beams": 2}]}

They are what forms, recorded runs and plans with `settings = "tuned"` begin with. The library's own
defaults stay those of the papers, and a link that does not name a setting means these.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi

from decoders import (
    InputError,
    catalog,
    copies_bytes,
    default_device,
    default_dtype,
    parameters,
    smollm2,
)
from decoders.devices import device_of
from decoders.errors import quoted
from decoders.process import assets
from decoders.settings import nearest

CACHE_BYTES = 2**30  # left for caches and activations next to the weights
CGROUP = Path("/sys/fs/cgroup")


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device, None if it does not say.

    On the CPU the container's limit counts as well.
    """
    if not device_of(device).on_host:
        return device_of(device).free_bytes
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
    except (OSError, StopIteration):
        return None
    try:
        limit, used = (
            (CGROUP / f"memory.{name}").read_text().strip() for name in ("max", "current")
        )
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - int(used))


def fits(weight_bytes: int, device: torch.device) -> bool:
    """Whether weights of this size leave room for caches.

    On a CPU, also for the copies that the engine makes of small models.
    """
    free = available_bytes(device)
    return free is None or weight_bytes + copies_bytes(weight_bytes, device) + CACHE_BYTES <= free


def shown_bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


HUB_SECONDS = 3  # for the hub to answer, when the page begins


@dataclass(frozen=True)
class PairChoice:
    """A pair to load.

    Models are hub ids (with "@revision" if pinned), folders or GGUF files.

    Attributes:
        target: the target; if both are None, the embedded pair; None beside a draft is the
            embedded target
        draft: the draft model; if it alone is None, the target is a folder that holds both, or has
            no draft
        device: "auto" or a name
        dtype: "auto" or a name
        quantization: as in `decoders.load_pair`
    """

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    quantization: str | None = None

    @property
    def title(self) -> str:
        if self.target == smollm2.NAME and self.draft is None:
            return SMOLLM2.name
        if self.target is None:
            return f"embedded target + {self.draft}" if self.draft else "embedded pair"
        return " + ".join(n.partition("@")[0] for n in (self.target, self.draft) if n)

    @property
    def preset(self) -> "PairPreset | None":
        """The preset with these models, on whichever device; None if there is none."""
        alone = PairChoice(self.target, self.draft)
        return next((preset for preset in PAIRS.values() if preset.choice() == alone), None)


@dataclass(frozen=True)
class PairPreset:
    name: str
    target: str | None = None  # None is the embedded one
    draft: str | None = None

    def choice(
        self, device: str = "auto", dtype: str = "auto", quantization: str | None = None
    ) -> PairChoice:
        return PairChoice(self.target, self.draft, device, dtype, quantization)


EMBEDDED = PairPreset("Llama-Stories (embedded)")
HEAD = PairPreset("Llama-Stories + head", draft="head")
SMOLLM2 = PairPreset("SmolLM2-135M-Instruct + head", smollm2.NAME)
HEADED = EMBEDDED, HEAD, SMOLLM2  # pairs that have a head
SMOL, QWEN = "HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen3-0.6B"
LLAMA, GPT_OSS = "meta-llama/Llama-3.2-1B-Instruct", "openai/gpt-oss-20b"
LARGER = "Qwen3-4B + Qwen3-0.6B"  # on a GPU
# The pairs that people run, from small to large; then the papers' pairs, with pinned revisions
# where the weights are pickled. A draft of another family proposes the tokens that both know.
PAIRS = {
    pair.name: pair
    for pair in (
        EMBEDDED,
        HEAD,
        SMOLLM2,
        PairPreset("SmolLM2-1.7B + SmolLM2-135M", "HuggingFaceTB/SmolLM2-1.7B", SMOL),
        PairPreset("SmolLM3-3B + SmolLM2-135M", "HuggingFaceTB/SmolLM3-3B", SMOL),
        PairPreset(LARGER, "Qwen/Qwen3-4B", QWEN),
        PairPreset("Qwen3-8B + Qwen3-0.6B", "Qwen/Qwen3-8B", QWEN),
        PairPreset("Qwen3-32B + Qwen3-0.6B", "Qwen/Qwen3-32B", QWEN),
        PairPreset("Gemma-3-1B + Gemma-3-270M", "google/gemma-3-1b-it", "google/gemma-3-270m-it"),
        PairPreset(
            "OLMo-2-7B + OLMo-2-1B",
            "allenai/OLMo-2-1124-7B-Instruct",
            "allenai/OLMo-2-0425-1B-Instruct",
        ),
        PairPreset(
            "Llama-3.1-8B + Llama-3.2-1B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B"
        ),
        PairPreset("Llama-3.3-70B + Llama-3.2-1B", "meta-llama/Llama-3.3-70B-Instruct", LLAMA),
        PairPreset("gpt-oss-20b, look-up only", GPT_OSS),
        PairPreset("gpt-oss-20b + Qwen3-0.6B", GPT_OSS, QWEN),
        PairPreset(
            "Llama-2-13B + Llama-68M",
            "meta-llama/Llama-2-13b-hf",
            "JackFram/llama-68m@964a5d77df908b69f8d6476fb70e940425b04cb5",
        ),
        PairPreset(
            "OPT-13B + OPT-125M",
            "facebook/opt-13b@e515202d1e7750da62d245fbccb2723b9c1790f5",
            "facebook/opt-125m@27dcfa74d334bc871f3234de431e71c6eeba5dd6",
        ),
    )
}


def first(environ: Mapping[str, str] = os.environ) -> PairChoice:
    """The pair that page and terminal begin with.

    Args:
        environ: WORKBENCH_PAIR names one. Without it, it is one whose text is worth reading: on
            ZeroGPU (SPACES_ZERO_GPU), and on a GPU that has room where the hub can be reached, a
            larger one; else SmolLM2, where its weights are on this machine; else the embedded pair.

    Raises:
        InputError: if no pair has that name
    """
    name = environ.get("WORKBENCH_PAIR")
    if not name:
        if environ.get("SPACES_ZERO_GPU") or _runs_larger():
            name = LARGER
        else:
            name = SMOLLM2.name if smollm2.at_hand() else EMBEDDED.name
    if name not in PAIRS:
        raise InputError(f"WORKBENCH_PAIR names no pair, {quoted(name)}: {nearest(name, PAIRS)}")
    return PAIRS[name].choice()


def _runs_larger() -> bool:
    device, pair = default_device(), PAIRS[LARGER]
    if device_of(device).on_host:
        return False
    try:
        HfApi().model_info(str(pair.target), timeout=HUB_SECONDS)
        count = parameters(pair.target, pair.draft)
    except Exception:  # in whatever way a network fails
        return False
    return fits(count * default_dtype(device).itemsize, device)


FILE = "settings.json"
OURS = EMBEDDED.choice()
Own = dict[str, Any]  # settings of one decoder by name


def file(choice: PairChoice = OURS) -> Path:
    """The file in which a pair in one folder keeps its settings, or one of this package."""
    if choice.preset is SMOLLM2:
        return assets() / smollm2.NAME / FILE
    return Path(choice.target or assets() / "stories") / FILE


def pair_settings(choice: PairChoice = OURS) -> dict[str, list[Own]]:
    """The settings that a pair keeps, by decoder, without those that have the library's default.

    Args:
        choice: the pair; only those of this package and those in one folder can keep settings

    Returns:
        for each decoder one set of settings, or several for several uses; {} if the file is
        missing or damaged

    Raises:
        InputError: if it names a decoder or a setting that is not there, or a value out of range
    """
    path = file(choice)
    try:
        whole = choice.draft is None and (
            choice.preset is SMOLLM2 or (path.parent / "target").is_dir()
        )
        data = json.loads(path.read_text(encoding="utf-8")) if whole else {}
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    settings = {name: own if isinstance(own, list) else [own] for name, own in data.items()}
    try:
        for name, sets in settings.items():
            for own in sets or [sets]:
                if not isinstance(own, Mapping):
                    raise InputError(
                        f"The settings of {name} must be one JSON object or several in a list, not "
                        f"{quoted(own)}."
                    )
                catalog[name](**own)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return settings


def tuned(choice: PairChoice = OURS) -> dict[str, Own]:
    """The first settings of each decoder in `pair_settings`, in the form of `Settings.to_json`."""
    return {name: own for name, (own, *_) in pair_settings(choice).items()}
