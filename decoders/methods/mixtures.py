"""Rules for a mixture of target and draft, pi, in place of the target: cascade and ensemble.

Drafts are judged as in speculative sampling with pi in place of p, so the output has the law of
sampling from pi one token at a time. That is not the target's law. It needs a q that is a function
of the text, as a draft model's is. What a head says depends on where rounds begin, and so on what
was kept before: with a head there is no law.

Source:
    Narasimhan et al. 2024 (Faster cascades via speculative decoding, arXiv 2405.19261); Fu et al.
    2025 (Speculative ensemble, arXiv 2502.01662).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from decoders.distribution import Distribution, Small, Whole, minimum
from decoders.methods.rules import Rule, SpeculativeRule, Verdict, walk
from decoders.methods.sources import Draft, Kind
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import Law, setting

ALPHA = setting(
    0.3, "how much less likely than its favourite the target may find a token", low=0.0, high=1.0
)
DEFER = setting(
    "token",
    "token: each token of q that p finds likely enough stays; opt: q as a whole, where it is sure "
    "enough for its distance from p",
    choices=("token", "opt"),
)
WEIGHT = setting(0.5, "weight of the target in the mixture (w); 1 is the target", low=0.0, high=1.0)


class Mixture(Rule):
    """A rule that is speculative sampling of pi(p, q)."""

    judges = frozenset({Kind.CHAIN})  # the law is a mixture with the draft model, not with counts
    lawless = frozenset({Kind.HEADED})
    beyond = True

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, SpeculativeRule(), self.mixed)

    @abstractmethod
    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        """pi, from p and q."""


@dataclass(frozen=True)
class Cascade(Mixture):
    """Speculative cascades: q where it is good enough for p.

    By token: pi = q on the tokens with p(x) >= (1 - alpha) max p, and p times the rest of q.
    OPT: pi = q if max q >= max p - alpha TV(p, q), else p.
    """

    name = "cascade"
    law = Law.CASCADE

    alpha: float = ALPHA
    defer: str = DEFER

    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        if self.defer == "opt":
            distance = 1 - minimum(p, q).total
            # Equals but for rounding are equal: with alpha = 1, q is always sure enough.
            slack = 32 * max(p.rounding, q.rounding)
            sure = highest(q) >= highest(p) - self.alpha * distance - slack
            return q if sure else p
        least = (1 - self.alpha) * highest(p)
        if least == 0:
            return q
        if isinstance(p, Whole) and isinstance(q, Whole):
            kept: Distribution = Whole(q.mass * (p.mass.to(q.mass.device) >= least))
        else:
            few = p if isinstance(p, Small) else p.within(x for x, _ in q.items())
            kept = q.within(x for x, m in few.mass.items() if m >= least)
        return total(kept, max(0.0, 1 - kept.total) * p)


@dataclass(frozen=True)
class Ensemble(Mixture):
    """The weighted mean of both models, w p + (1 - w) q."""

    name = "ensemble"
    law = Law.ENSEMBLE

    weight: float = WEIGHT

    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        return total(self.weight * p, (1 - self.weight) * q)


def highest(p: Distribution) -> float:
    """The largest mass."""
    return max(p.mass.values()) if isinstance(p, Small) else p.mass.max().item()


def total(p: Distribution, q: Distribution) -> Distribution:
    """The sum of two measures."""
    if isinstance(p, Small) and isinstance(q, Small):
        ids = sorted({*p.mass, *q.mass})
        return Small({x: m for x in ids if (m := p[x] + q[x]) > 0})
    whole, other = (p, q) if isinstance(p, Whole) else (q, p)
    assert isinstance(whole, Whole)
    if isinstance(other, Whole):
        return Whole(whole.mass + other.mass.to(whole.mass))
    mass = whole.mass.clone()
    few = torch.tensor(list(other.mass.values()), dtype=mass.dtype, device=mass.device)
    mass[list(other.mass)] += few
    return Whole(mass)
