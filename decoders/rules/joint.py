"""MTAD's rule: keep the longest prefix of a draft whose joint likelihood under the target is not far below the draft model's."""

import math

import torch

from decoders.request import Request
from decoders.shapes import Logits, LogProbs, NodeId
from decoders.trace import Fate, Trial


def path_log_probs(log_probs: LogProbs, tokens: list[int]) -> torch.Tensor:
    """The log-probability (steps,) of each token of a path in its row of log_probs (steps, V)."""
    return log_probs[torch.arange(len(tokens)), tokens]


def joint_ratios(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """log r_j = sum over i <= j of log p(x_i) - log q(x_i), shape (steps,).

    Beam sampling warps the flattened joint, and so can draw tokens whose own conditional probability is warped to 0. p = 0 makes
    this and all longer prefixes fail (-inf); q = 0 < p counts as a factor of 1.
    """
    factor = torch.where(log_q == -math.inf, 0.0, log_p - log_q)
    return torch.where(log_p == -math.inf, -math.inf, factor).cumsum(0)


def keep_longest(
    request: Request, path: list[NodeId], p_logits: Logits, q_logits: Logits | None, threshold: float, warped: bool
) -> tuple[list[Trial], NodeId]:
    """Judge a draft path by mtad.txt §3.2 and algorithm 1 (whose `eta <- j` is a misprint for i, and whose eta starts at 0).

    p_logits   (steps + 1, V);   q_logits  (steps, V), or None for a path that is certain, as a copy is: q = 1
    warped     compare warped distributions, not raw ones
    Prefix j passes if min(1, r_j) > threshold. The longest that passes is kept, even if a shorter one fails; then one token is drawn
    from the warped target. Returns every trial and the new tip.
    """
    root = request.tip
    tokens = [request.tree.tokens[n] for n in path]
    p = request.warp(p_logits)
    log_p = p.log() if warped else p_logits.log_softmax(-1)
    log_p = path_log_probs(log_p[: len(path)], tokens)
    if q_logits is None:
        log_q = torch.zeros_like(log_p)
    else:
        log_q = path_log_probs(request.warp(q_logits).log() if warped else q_logits.log_softmax(-1), tokens)
        log_q = log_q.to(log_p.device)
    ratios = joint_ratios(log_p, log_q).clamp(max=0)
    # In logs, because a tiny ratio would underflow to 0 and fail threshold 0, which keeps whatever the target can write.
    passing = (ratios > (math.log(threshold) if threshold else -math.inf)).nonzero()
    kept = int(passing[-1]) + 1 if len(passing) else 0
    numbers = torch.stack([log_p, log_q, ratios], dim=-1).exp().tolist()
    trials = [
        Trial(node, token, parent, Fate.ACCEPTED if i < kept else Fate.REJECTED, *compared)
        for i, (node, token, parent, compared) in enumerate(zip(path, tokens, [root, *path], numbers, strict=False))
    ]
    after = path[kept - 1] if kept else root
    if kept and tokens[kept - 1] in request.end_tokens:
        return trials, after
    token = request.source.draw(p[kept])[0]
    fate = Fate.SAMPLED if not path else Fate.BONUS if kept == len(path) else Fate.CORRECTED
    tip = request.tree.add(after, token)
    trials.append(Trial(tip, token, after, fate, p=p[kept, token].item()))
    return trials, tip
