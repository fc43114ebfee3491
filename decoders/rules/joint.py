"""MTAD's rule: keep the longest prefix of a draft whose joint likelihood the target supports.

That is, whose joint likelihood under the target is not far below the draft model's.
"""

import math
from collections.abc import Iterable, Sequence
from math import exp

from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Trial


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
    ratios = [min(0.0, ratio) for ratio in joint_ratios(log_p, log_q)]
    # In logs, because a tiny ratio would underflow to 0 and fail threshold 0, which keeps all that
    # the target can write.
    least = log(threshold)
    passing = [j for j, ratio in enumerate(ratios) if ratio > least]
    kept = passing[-1] + 1 if passing else 0
    trials = _trials(request, path, kept, zip(log_p, log_q, ratios, strict=True))
    after = path[kept - 1] if kept else request.tip
    if kept and tokens[kept - 1] in request.end_tokens:
        return trials, after
    probs = request.warp(p[kept])
    token = request.source.draw(probs)[0]
    fate = Fate.SAMPLED if not path else Fate.BONUS if kept == len(path) else Fate.CORRECTED
    tip = request.tree.add(after, token)
    trials.append(Trial(tip, token, after, fate, p=probs[token]))
    return trials, tip


def _log_probabilities(
    request: Request, readings: Sequence[Reading], tokens: Sequence[TokenId], warped: bool
) -> list[float]:
    """The log-probability of each token at its reading."""
    return [
        log(request.warp(reading)[token]) if warped else reading.log_p(token)
        for reading, token in zip(readings, tokens, strict=True)
    ]


def _trials(
    request: Request, path: list[NodeId], kept: int, logs: Iterable[tuple[float, float, float]]
) -> list[Trial]:
    """The trials of a path of which `kept` nodes are kept; `logs` holds log p, log q and log r."""
    fates = [Fate.ACCEPTED] * kept + [Fate.REJECTED] * (len(path) - kept)
    return [
        Trial(node, request.tree.tokens[node], parent, fate, exp(p), exp(q), exp(ratio))
        for node, parent, fate, (p, q, ratio) in zip(
            path, [request.tip, *path], fates, logs, strict=False
        )
    ]
