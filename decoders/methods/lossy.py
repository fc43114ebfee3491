"""Rules that keep what is good enough, so that the output has no known law.

Source:
    Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance; Kim et al. 2023 (BiLD, arXiv
    2302.07863), rollback policy; Li et al. 2025 (FLy, arXiv 2511.22972).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decoders.distribution import Distribution, Small
from decoders.methods.rules import Node, NodeWise, Pick, Rule, SpeculativeRule, Verdict
from decoders.methods.sources import CHAINS, Draft
from decoders.randomness import RandomSource
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import setting
from decoders.shapes import TokenId
from decoders.trace import Fate, Trial

EPSILON = setting(0.09, "a probability above this always passes", low=0.0, high=1.0)
DELTA = setting(0.3, "where the target is unsure, delta exp(-entropy) is enough", low=0.0, high=1.0)
ROLLBACK = setting(
    2.0, "undo a token whose -log p under the target exceeds this, in nats", low=0.0, high=100.0
)
THRESHOLD = setting(
    0.3,
    "a refused token may stay where the target is unsure: where the part of its entropy from its "
    "three likeliest tokens is at least this, in nats",
    low=0.0,
    high=2.0,
)
WINDOW = setting(6, "and if this many draft tokens after it are accepted (W)", low=1, high=32)


def tossless(
    token: TokenId, probability: float, kept: bool, p: Distribution, q: Distribution | None
) -> Pick:
    """The pick of a rule without randomness, which judges `token` by its probability alone.

    A refused token is replaced by a draw from p itself, so such a rule is lossy.
    """
    return Pick([(probability, 1.0 if q is None else q[token], None, None)], kept, rest=p)


@dataclass(frozen=True)
class TypicalRule(NodeWise):
    """Medusa's typical acceptance: p(x) > min(epsilon, delta exp(-H(p))).

    p and its entropy H (nats) are those after warping.

    Source:
        Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance.
    """

    name = "typical"
    law = None
    judges = CHAINS

    epsilon: float = EPSILON
    delta: float = DELTA

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,), _ = node
        probability = p[token]
        kept = probability > min(self.epsilon, self.delta * math.exp(-p.entropy))
        return tossless(token, probability, kept, p, q)


@dataclass(frozen=True)
class RollbackRule(NodeWise):
    """BiLD's rule: keep a token while -log p(x) <= rollback, or drop it with all that follows.

    Source:
        Kim et al. 2023 (BiLD, arXiv 2302.07863), rollback policy.
    """

    name = "rollback"
    law = None
    judges = CHAINS

    rollback: float = ROLLBACK

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,), reading = node
        log_p = reading.log_p(token)
        return tossless(token, math.exp(log_p), -log_p <= self.rollback, p, q)


@dataclass(frozen=True)
class FLyRule(Rule):
    """Keeps a refused token where the target is unsure and the next W draft tokens are accepted.

    Source:
        Li et al. 2025 (FLy, arXiv 2511.22972).
    """

    name = "fly"
    law = None
    judges = CHAINS

    threshold: float = THRESHOLD
    window: int = WINDOW

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        p, rule = [request.warp(reading) for reading in readings], SpeculativeRule()
        draws = draft.draws
        trials = [Trial(d.node, d.token, d.parent, Fate.DISCARDED) for d in draws]
        refused: tuple[int, Distribution] | None = None  # a place, and what is left of p there
        for i, d in enumerate(draws):
            if refused and i > refused[0] + self.window:
                refused = None  # the window was accepted
            pick = rule.pick(
                Node(p[i], draft.q.get(d.parent), [d.token], readings[i]), request.source
            )
            trial = trials[i]
            trial.p, trial.q, trial.accept_probability, trial.u = pick.tests[0]
            if pick.kept:
                continue
            assert pick.rest
            refused = refused or (i, pick.rest)
            unsure = sum(m * math.log(m) for m in three_likeliest(p[i]))
            if refused[0] < i or i + self.window >= len(draws) or -unsure < self.threshold:
                break
        else:
            refused = None
        kept = refused[0] if refused else len(draws)
        for trial in trials[:kept]:
            trial.fate = Fate.ACCEPTED
        if refused:
            trials[kept].fate, fate, rest = Fate.REJECTED, Fate.CORRECTED, refused[1]
        else:
            fate, rest = (Fate.BONUS if draws else Fate.SAMPLED), p[-1]
        after = draws[kept - 1].node if kept else draft.root
        own, tip = request.sample(after, fate, rest, p[kept])
        return [*trials, *own], tip


def three_likeliest(p: Distribution) -> list[float]:
    """The three largest masses above 0."""
    if isinstance(p, Small):
        return sorted(p.mass.values())[-3:]
    return [m for m in p.mass.topk(min(3, len(p.mass))).values.tolist() if m > 0]
