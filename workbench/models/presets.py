"""Model pairs by name."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Model:
    """A model of the hub. `parameters` counts tied weights once; `revision` is pinned if the repository has only pickled weights."""

    id: str
    parameters: int
    revision: str | None = None

    @property
    def source(self) -> str:
        return f"{self.id}@{self.revision}" if self.revision else self.id


@dataclass(frozen=True)
class PairChoice:
    """What to load: target and draft are hub ids (with "@revision" if pinned) or folders. Both None is the embedded pair; only the
    draft None is a folder that holds both, or a target without a draft. device and dtype are "auto" or a name."""

    target: str | None = None
    draft: str | None = None
    device: str = "auto"
    dtype: str = "auto"

    @property
    def title(self) -> str:
        names = [n.partition("@")[0] for n in (self.target, self.draft) if n]
        return " + ".join(names) or "embedded pair"


@dataclass(frozen=True)
class PairPreset:
    """A pair by name; target None is the embedded one."""

    name: str
    target: Model | None = None
    draft: Model | None = None

    @property
    def target_source(self) -> str | None:
        return self.target and self.target.source

    @property
    def draft_source(self) -> str | None:
        return self.draft and self.draft.source

    def weight_bytes(self, dtype: torch.dtype) -> int:
        """What the weights alone take in memory; caches come on top. 0 for the embedded pair, which is small."""
        return sum(m.parameters for m in (self.target, self.draft) if m) * dtype.itemsize

    def choice(self, device: str = "auto", dtype: str = "auto") -> PairChoice:
        return PairChoice(self.target_source, self.draft_source, device, dtype)


EMBEDDED = PairPreset("Llama-Stories (embedded)")
PAIRS = {
    pair.name: pair
    for pair in (
        EMBEDDED,
        PairPreset(
            "SmolLM2-1.7B + SmolLM2-135M",
            Model("HuggingFaceTB/SmolLM2-1.7B", 1_711_376_384),
            Model("HuggingFaceTB/SmolLM2-135M", 134_515_008),
        ),
        PairPreset(
            "Qwen3-8B + Qwen3-0.6B", Model("Qwen/Qwen3-8B", 8_190_735_360), Model("Qwen/Qwen3-0.6B", 596_049_920)
        ),
        PairPreset(
            "Llama-3.1-8B + Llama-3.2-1B",
            Model("meta-llama/Llama-3.1-8B", 8_030_261_248),
            Model("meta-llama/Llama-3.2-1B", 1_235_814_400),
        ),
        PairPreset(
            "Llama-2-13B + Llama-68M",
            Model("meta-llama/Llama-2-13b-hf", 13_015_864_320),
            Model("JackFram/llama-68m", 68_030_208, "964a5d77df908b69f8d6476fb70e940425b04cb5"),
        ),
        PairPreset(
            "OPT-13B + OPT-125M",
            Model("facebook/opt-13b", 12_853_473_280, "e515202d1e7750da62d245fbccb2723b9c1790f5"),
            Model("facebook/opt-125m", 125_239_296, "27dcfa74d334bc871f3234de431e71c6eeba5dd6"),
        ),
    )
}
