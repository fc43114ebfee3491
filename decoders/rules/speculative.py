"""Speculative sampling: accept a draft token with probability min(1, p / (l q)), else draw from the residual."""

from dataclasses import dataclass

import torch

from decoders.rules.walk import Pick
from decoders.sampling import RandomSource, residual
from decoders.shapes import Logits, Probs, TokenId


@dataclass(frozen=True, slots=True)
class SpeculativeRule:
    """speculative-decoding.txt algorithm 1 and §2.3; lenience l of appendix A.5.

    lenience  l in (0, 1]; 1 is exact
    greedy    the temperature is 0: accept with lenience when p(x) >= l * max p on the raw target (the paper prints the inequality
              the wrong way round)
    """

    lenience: float = 1.0
    greedy: bool = False

    def pick(self, p: Probs, q: Probs | None, tokens: list[TokenId], logits: Logits, source: RandomSource) -> Pick:
        (token,) = tokens
        p_token = p[token].item()
        q_token = 1.0 if q is None else q[token].item()
        if self.greedy and self.lenience < 1:
            gap = (logits[token] - logits.max()).exp().item()  # p(x) / max p
            probability = float(gap >= self.lenience)
        else:
            probability = min(1.0, p_token / (self.lenience * q_token))
        kept, u = source.accept(probability)
        pick = Pick([(p_token, q_token, probability, u)], kept)
        if not kept:
            pick.rest = residual(p, self.lenience * (point_mass(p, token) if q is None else q))
        return pick


def point_mass(like: Probs, token: TokenId) -> Probs:
    return torch.zeros_like(like).index_fill_(0, torch.tensor([token], device=like.device), 1.0)
