"""Results compared with the tokens that they must have."""

import math
from collections.abc import Mapping, Sequence

import torch

from decoders import Method
from workbench.runs.record import Agreement, Result
from workbench.runs.trace import TokenRecord
from workbench.studies.schemes import BASELINE
from workbench.studies.study import Job

Outputs = Mapping[int, Sequence[int]]  # prompt -> its token ids


class References:
    """The first outputs of each law. Whatever must give the same tokens, in any batch, is compared with them."""

    def __init__(self, temperature: float, dtype: str):
        self._temperature, self._dtype = temperature, dtype
        self._found: dict[tuple[str, int], tuple[Result, Outputs]] = {}

    def compare(self, job: Job, result: Result, outputs: Outputs) -> Agreement | None:
        """None if there is nothing that the tokens must equal, or if this is the first of its law."""
        if result.error or result.cancelled:
            return None
        key = self._law(job.method, job.seed)
        if key not in self._found:
            if key[0] == job.method.name:
                self._found[key] = result, outputs
            return None
        return agreement(key[0], *self._found[key], result, outputs, self._dtype)

    def _law(self, method: Method, seed: int) -> tuple[str, int]:
        """At temperature 0 exact decoders write what greedy does; others what they wrote with this seed before."""
        return (BASELINE, 0) if self._temperature == 0 and method.lossless else (method.name, seed)


def agreement(
    name: str, reference: Result, expected: Outputs, result: Result, outputs: Outputs, dtype: str
) -> Agreement:
    """Compare two results prompt by prompt; where the first difference lies is known if both kept their tokens.

    The noise is measured on the tokens before the first difference, where both runs asked for the same log-probabilities in passes
    of different shapes; it is at least the rounding of one number of the dtype.
    """
    both = expected.keys() & outputs.keys()
    differing = [i for i in sorted(both) if list(expected[i]) != list(outputs[i])]
    if not differing or not (reference.alone.tokens and result.alone.tokens):
        return Agreement(name, len(both), len(differing), dtype=dtype)
    greedy, other = reference.alone.tokens, result.alone.tokens
    shorter = min(len(greedy), len(other))
    at = next((i for i, (a, b) in enumerate(zip(greedy, other, strict=False)) if a.id != b.id), shorter)
    noise = max((abs(a - b) for a, b in _shared_log_probs(greedy[:at], other[:at])), default=0.0)
    noise = max(noise, torch.finfo(getattr(torch, dtype)).eps)
    gap = _gap(greedy[at], other[at].id) if at < shorter else None
    near = gap is not None and gap <= 2 * noise
    return Agreement(name, len(both), len(differing), at, gap, noise, near, dtype)


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
