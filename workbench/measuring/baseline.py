"""Other decoders held against greedy: how much faster, and whether the output is the same."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from decoders import Method
from workbench.runs.record import GreedyCheck, RunResult, TokenRecord


def against_greedy(
    result: RunResult, greedy: RunResult | None, method: Method, temperature: float, dtype: str
) -> RunResult:
    """The result with `x_greedy` and, at temperature 0 for a lossless decoder, `greedy_check`; as it is where greedy did not run."""
    if greedy is None or greedy.error or result.error or "cancelled" in (greedy.finished, result.finished):
        return result
    speeds = result.metrics["tokens_per_second"], greedy.metrics["tokens_per_second"]
    same = (
        check(greedy.tokens, result.tokens, dtype)
        if temperature == 0 and method.lossless and result is not greedy
        else None
    )
    return replace(result, x_greedy=speeds[0] / speeds[1] if all(speeds) else None, greedy_check=same)


def check(greedy: Sequence[TokenRecord], other: Sequence[TokenRecord], dtype: str) -> GreedyCheck:
    """Compare two outputs at temperature 0, where every exact decoder gives greedy's tokens up to rounding.

    The noise is measured on the tokens before the first difference, where both runs asked for the same log-probabilities in passes
    of different shapes; it is at least the rounding of one number of the dtype.
    """
    ids = [[t.id for t in tokens] for tokens in (greedy, other)]
    if ids[0] == ids[1]:
        return GreedyCheck(True, None, None, None, False, dtype)
    at = next((i for i, (a, b) in enumerate(zip(*ids, strict=False)) if a != b), min(map(len, ids)))
    noise = max((abs(a - b) for a, b in _shared_log_probs(greedy[:at], other[:at])), default=0.0)
    noise = max(noise, torch.finfo(getattr(torch, dtype)).eps)
    gap = _gap(greedy[at], other[at].id) if at < min(map(len, ids)) else None
    return GreedyCheck(False, at, gap, noise, gap is not None and gap <= 2 * noise, dtype)


def _shared_log_probs(a: Sequence[TokenRecord], b: Sequence[TokenRecord]) -> list[tuple[float, float]]:
    """What two runs say of the same token at the same place, for all tokens that both list."""
    pairs = []
    for x, y in zip(a, b, strict=True):
        there = {alternative.id: alternative.p for alternative in y.alternatives}
        pairs += [(math.log(o.p), math.log(there[o.id])) for o in x.alternatives if there.get(o.id, 0) > 0 < o.p]
    return pairs


def _gap(token: TokenRecord, rival: int) -> float | None:
    p = {alternative.id: alternative.p for alternative in token.alternatives}
    return math.log(p[token.id] / p[rival]) if p.get(token.id) and p.get(rival) else None
