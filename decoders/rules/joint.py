"""MTAD's rule: keep the longest prefix of a draft whose joint likelihood under the target is not far below the draft model's."""

import math
from collections.abc import Sequence
from math import exp

from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial


def log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def joint_ratios(log_p: Sequence[float], log_q: Sequence[float]) -> list[float]:
    """log r_j = sum over i <= j of log p(x_i) - log q(x_i), for each j.

    Beam sampling warps the flattened joint, and so can draw tokens whose own conditional probability is warped to 0. p = 0 makes
    this and all longer prefixes fail (-inf); q = 0 < p counts as a factor of 1.
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
    """Judge a draft path by mtad.txt §3.2 and algorithm 1 (whose `eta <- j` is a misprint for i, and whose eta starts at 0).

    p        the target's readings before each token of the path and after the last;   q  the draft model's before each token, or None
             for a path that is certain, as a copy is: q = 1
    warped   compare warped distributions, not raw ones
    Prefix j passes if min(1, r_j) > threshold. The longest that passes is kept, even if a shorter one fails; then one token is drawn
    from the warped target. Returns every trial and the new tip.
    """
    root = request.tip
    tokens = [request.tree.tokens[n] for n in path]

    def log_probability(reading: Reading, token: int) -> float:
        return log(request.warp(reading)[token]) if warped else reading.log_p(token)

    log_p = [log_probability(r, x) for r, x in zip(p, tokens, strict=False)]
    log_q = [0.0] * len(path) if q is None else [log_probability(r, x) for r, x in zip(q, tokens, strict=True)]
    ratios = [min(0.0, ratio) for ratio in joint_ratios(log_p, log_q)]
    # In logs, because a tiny ratio would underflow to 0 and fail threshold 0, which keeps whatever the target can write.
    least = log(threshold)
    passing = [j for j, ratio in enumerate(ratios) if ratio > least]
    kept = passing[-1] + 1 if passing else 0
    trials = [
        Trial(node, token, parent, Fate.ACCEPTED if i < kept else Fate.REJECTED, exp(of_p), exp(of_q), exp(ratio))
        for i, (node, token, parent, of_p, of_q, ratio) in enumerate(
            zip(path, tokens, [root, *path], log_p, log_q, ratios, strict=False)
        )
    ]
    after = path[kept - 1] if kept else root
    if kept and tokens[kept - 1] in request.end_tokens:
        return trials, after
    probs = request.warp(p[kept])
    token = request.source.draw(probs)[0]
    fate = Fate.SAMPLED if not path else Fate.BONUS if kept == len(path) else Fate.CORRECTED
    tip = request.tree.add(after, token)
    trials.append(Trial(tip, token, after, fate, p=probs[token]))
    return trials, tip
