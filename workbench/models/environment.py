"""The environment of a study, without which a figure means nothing."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from decoders import Head, ModelPair
from decoders.devices import device_of
from decoders.process import assets


@dataclass(frozen=True, slots=True)
class Threads:
    """The number of threads that compute, and why it is this one.

    Attributes:
        count: the number
        reason: the reason in words
    """

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
    """The name of a model; those of this project have a name, not a path."""
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
