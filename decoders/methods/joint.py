"""MTAD's rule: the longest prefix of a draft that the target finds likely enough as a whole.

Source:
    Qin et al. 2024 (MTAD, arXiv 2407.09722), section 3.2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decoders.methods.rules import Rule, Verdict
from decoders.methods.sources import CHAINS, Draft
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import setting
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Trial

THRESHOLD = setting(
    0.1,
    "keep prefixes whose joint likelihood ratio min(1, p/q) is above this (tau)",
    low=0.0,
    high=1.0,
)


def log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def joint_ratios(log_p: Sequence[float], log_q: Sequence[float]) -> list[float]:
    """log r_j = sum over i <= j of log p(x_i) - log q(x_i), for each j.

    Beam sampling warps the flattened joint, and so can draw tokens whose own conditional
    probability is warped to 0. With p = 0 this and all longer prefixes fail (-inf); q = 0 < p
    counts as a factor of 1.
    """
    ratios, ratio = [], 0.0
    for p, q in zip(log_p, log_q, strict=True):
        if p == -math.inf:
            ratio = -math.inf
        elif q > -math.inf:
            ratio += p - q
        ratios.append(ratio)
    return ratios


def keep_longest(
    request: Request,
    path: list[NodeId],
    p: Sequence[Reading],
    q: Sequence[Reading] | None,
    threshold: float,
    warped: bool,
) -> tuple[list[Trial], NodeId]:
    """Judge a draft path by its joint likelihood, and draw the token after it.

    Prefix j passes if min(1, r_j) > threshold. The longest that passes is kept, even if a shorter
    one fails; then one token is drawn from the warped target. Returns every trial and the new tip.

    Args:
        request: the request being decoded
        path: the draft's nodes below the tip
        p: the target's readings before each token of the path and after the last
        q: the draft model's readings before each token; None for a certain path, as a copy is
        threshold: tau
        warped: compare warped distributions, not raw ones

    Source:
        Qin et al. 2024 (arXiv 2407.09722), section 3.2 and algorithm 1, where `eta <- j` is a
        misprint for i, and eta starts at 0.
    """
    tokens = [request.tree.tokens[n] for n in path]
    log_p = _log_probabilities(request, p[: len(path)], tokens, warped)
    log_q = [0.0] * len(path) if q is None else _log_probabilities(request, q, tokens, warped)
    return _kept(request, path, p, log_p, log_q, threshold)


def _kept(
    request: Request,
    path: list[NodeId],
    p: Sequence[Reading],
    log_p: Sequence[float],
    log_q: Sequence[float],
    threshold: float,
) -> tuple[list[Trial], NodeId]:
    tokens = [request.tree.tokens[n] for n in path]
    ratios = [min(0.0, ratio) for ratio in joint_ratios(log_p, log_q)]
    # In logs, because a tiny ratio would underflow to 0 and fail threshold 0, which keeps all that
    # the target can write.
    least = log(threshold)
    passing = [j for j, ratio in enumerate(ratios) if ratio > least]
    kept = passing[-1] + 1 if passing else 0
    trials = [
        Trial(
            node, tokens[j], parent, Fate.ACCEPTED if j < kept else Fate.REJECTED,
            math.exp(log_p[j]), math.exp(log_q[j]), math.exp(ratios[j]),
        )
        for j, (node, parent) in enumerate(zip(path, [request.tip, *path], strict=False))
    ]  # fmt: skip
    after = path[kept - 1] if kept else request.tip
    probs = request.warp(p[kept])
    fate = Fate.SAMPLED if not path else Fate.BONUS if kept == len(path) else Fate.CORRECTED
    own, tip = request.sample(after, fate, probs, probs)
    return trials + own, tip


def _log_probabilities(
    request: Request, readings: Sequence[Reading], tokens: Sequence[TokenId], warped: bool
) -> list[float]:
    return [
        log(request.warp(reading)[token]) if warped else reading.log_p(token)
        for reading, token in zip(readings, tokens, strict=True)
    ]


@dataclass(frozen=True)
class JointRule(Rule):
    """MTAD's rule for any chain: the longest prefix whose joint ratio passes, warped."""

    name = "mtad"
    law = None
    judges = CHAINS

    threshold: float = THRESHOLD

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        path, tokens = [d.node for d in draft.draws], [d.token for d in draft.draws]
        log_p = _log_probabilities(request, readings[: len(path)], tokens, warped=True)
        log_q = [
            log(draft.q[d.parent][d.token]) if d.parent in draft.q else 0.0 for d in draft.draws
        ]
        return _kept(request, path, readings, log_p, log_q, self.threshold)
