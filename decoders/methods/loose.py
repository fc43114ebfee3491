"""Named combinations whose output is not the target's: no known law, or that of a mixture."""

from dataclasses import dataclass

from decoders.methods.combination import Combination, draft
from decoders.methods.lossy import (
    ALPHA,
    DEFER,
    DELTA,
    EPSILON,
    ROLLBACK,
    THRESHOLD,
    WEIGHT,
    WINDOW,
    Cascade,
    Ensemble,
    FLyRule,
    RollbackRule,
    TypicalRule,
)
from decoders.methods.rules import Parts
from decoders.methods.sources import DRAFT_LENGTH, Chain
from decoders.settings import setting


@dataclass(frozen=True)
class Typical(Combination):
    name = "typical"
    title = "Typical acceptance"
    paper, section = "Cai et al. 2024 (Medusa)", "typical acceptance"
    summary = (
        "Keeps a draft token that the large model finds likely enough for how sure it is: fast, "
        "not exact."
    )

    draft_length: int = DRAFT_LENGTH
    epsilon: float = EPSILON
    delta: float = DELTA
    draft: str = draft(Chain, TypicalRule)

    @property
    def parts(self) -> Parts:
        return self.chosen(Chain(self.draft_length)), TypicalRule(self.epsilon, self.delta)


@dataclass(frozen=True)
class BiLD(Combination):
    name = "bild"
    title = "BiLD"
    stands_for = "big little decoder"
    paper, section = "Kim et al. 2023 (BiLD)", "fallback and rollback policies"
    summary = (
        "The small model writes while it is sure; the large one takes over when it hesitates, and "
        "undoes its mistakes."
    )

    draft_length: int = setting(10, "most draft tokens per round (gamma)", low=1, high=64)
    fallback: float = setting(
        0.9,
        "stop drafting when the draft model's largest probability is below this; above 1: at once",
        low=0.0,
        high=2.0,
    )
    rollback: float = ROLLBACK

    @property
    def parts(self) -> Parts:
        return Chain(self.draft_length, self.fallback), RollbackRule(self.rollback)


@dataclass(frozen=True)
class SpeculativeCascade(Combination):
    name = "cascade"
    title = "Cascade"
    paper, section = "Narasimhan et al. 2024 (speculative cascades)", "abstract"
    summary = (
        "Lets the small model's token stand wherever the large one finds it good enough: more is "
        "kept, and the text is that of a stated mixture of both."
    )

    draft_length: int = DRAFT_LENGTH
    alpha: float = ALPHA
    defer: str = DEFER

    @property
    def parts(self) -> Parts:
        return Chain(self.draft_length), Cascade(self.alpha, self.defer)


@dataclass(frozen=True)
class SpeculativeEnsemble(Combination):
    name = "ensemble"
    title = "Ensemble"
    paper, section = "Fu et al. 2025 (speculative ensemble)", "abstract"
    summary = "Samples from the weighted mean of both models, at the speed of drafting."

    draft_length: int = DRAFT_LENGTH
    weight: float = WEIGHT

    @property
    def parts(self) -> Parts:
        return Chain(self.draft_length), Ensemble(self.weight)


@dataclass(frozen=True)
class FLy(Combination):
    name = "fly"
    title = "FLy"
    stands_for = "loosely speculative decoding"
    paper, section = "Li et al. 2025 (FLy)", "abstract"
    summary = (
        "Keeps a refused guess if the large model is unsure there and accepts what follows it: "
        "longer drafts survive, not exact."
    )

    draft_length: int = setting(10, "draft tokens per round (gamma)", low=2, high=64)
    threshold: float = THRESHOLD
    window: int = WINDOW
    draft: str = draft(Chain, FLyRule)

    @property
    def parts(self) -> Parts:
        return self.chosen(Chain(self.draft_length)), FLyRule(self.threshold, self.window)
