"""Rules that toss nothing: a draft token stays if the target finds it likely enough, else the target draws its own."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.shapes import Logits, Probs, TokenId


class ThresholdRule:
    """Keeps a token whose probability passes; the token in place of a refused one is drawn from p itself, so the rule is lossy.

    raw  whether the probability judged is the raw target's, not the warped one's
    """

    raw: ClassVar[bool] = False

    def passes(self, probability: float, p: Probs) -> bool:
        raise NotImplementedError  # pragma: no cover - every rule has its own

    def pick(self, p: Probs, q: Probs | None, tokens: list[TokenId], logits: Logits, source: RandomSource) -> Pick:
        (token,) = tokens
        probability = (logits.softmax(-1) if self.raw else p)[token].item()
        q_token = 1.0 if q is None else q[token].item()
        return Pick([(probability, q_token, None, None)], self.passes(probability, p), rest=p)


@dataclass(frozen=True)
class TypicalRule(ThresholdRule):
    """Medusa's typical acceptance: p(x) > min(epsilon, delta exp(-H(p))), p and its entropy H (nats) warped."""

    epsilon: float = 0.09
    delta: float = 0.3

    def passes(self, probability: float, p: Probs) -> bool:
        entropy = torch.special.entr(p).sum()
        return probability > min(self.epsilon, (self.delta * torch.exp(-entropy)).item())
