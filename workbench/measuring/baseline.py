"""Results compared with the tokens that they must have."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from decoders import catalog
from workbench.runs.record import Agreement, Result
from workbench.runs.trace import TokenRecord
from workbench.studies.schemes import BASELINE
from workbench.studies.study import Job

Outputs = Mapping[int, Sequence[int]]  # prompt -> its token ids


class References:
    """The first outputs of each law.

    Later outputs of the same law, in any batch, are compared with them.

    Args:
        temperature: the study's
        dtype: of the target's weights
    """

    def __init__(self, temperature: float, dtype: str):
        self._temperature, self._dtype = temperature, dtype
        self._found: dict[tuple[Any, ...], tuple[Result, Outputs]] = {}

    def compare(self, job: Job, result: Result, outputs: Outputs) -> Agreement | None:
        """Compare a job's outputs with the first of its law.

        Args:
            job: the job
            result: its result
            outputs: the token ids of each prompt

        Returns:
            None if no other tokens must be the same, or if this is the first of its law
        """
        if result.error or result.cancelled:
            return None
        # At temperature 0 exact decoders write the tokens of greedy; others repeat their own of the
        # same settings and seed.
        greedy = self._temperature == 0 and job.method.lossless
        method = catalog[BASELINE]() if greedy else job.method
        key = (method, 0 if greedy else job.seed, job.prompt)
        if key not in self._found:
            if method == job.method:
                self._found[key] = result, outputs
            return None
        return agreement(method.name, *self._found[key], result, outputs, self._dtype)


def agreement(
    name: str, reference: Result, expected: Outputs, result: Result, outputs: Outputs, dtype: str
) -> Agreement:
    """Compare two results prompt by prompt.

    The place of the first difference is known if both results kept their tokens. The noise is
    measured on the tokens before it, where both runs read the same log-probabilities in passes of
    different shapes; it is at least the rounding of one number of the dtype.

    Args:
        name: the decoder of the reference
        reference: its result
        expected: its token ids by prompt
        result: the result to compare
        outputs: its token ids by prompt
        dtype: of the target's weights
    """
    both = expected.keys() & outputs.keys()
    differing = [i for i in sorted(both) if list(expected[i]) != list(outputs[i])]
    if not differing or not (reference.alone.tokens and result.alone.tokens):
        return Agreement(name, len(both), len(differing), dtype=dtype)
    greedy, other = reference.alone.tokens, result.alone.tokens
    shorter = min(len(greedy), len(other))
    at = next(
        (i for i, (a, b) in enumerate(zip(greedy, other, strict=False)) if a.id != b.id), shorter
    )
    noise = max((abs(a - b) for a, b in _shared_log_probs(greedy[:at], other[:at])), default=0.0)
    noise = max(noise, torch.finfo(getattr(torch, dtype)).eps)
    gap = _gap(greedy[at], other[at].id) if at < shorter else None
    near = gap is not None and gap <= 2 * noise
    return Agreement(name, len(both), len(differing), at, gap, noise, near, dtype)


def _shared_log_probs(
    a: Sequence[TokenRecord], b: Sequence[TokenRecord]
) -> list[tuple[float, float]]:
    """The two log-probabilities of each token that both runs list at the same place."""
    pairs = []
    for x, y in zip(a, b, strict=True):
        there = {alternative.id: alternative.p for alternative in y.alternatives}
        pairs += [
            (math.log(o.p), math.log(there[o.id]))
            for o in x.alternatives
            if there.get(o.id, 0) > 0 < o.p
        ]
    return pairs


def _gap(token: TokenRecord, rival: int) -> float | None:
    p = {alternative.id: alternative.p for alternative in token.alternatives}
    return math.log(p[token.id] / p[rival]) if p.get(token.id) and p.get(rival) else None
