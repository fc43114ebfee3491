"""The timings of a study's decoders: their order and number, merged into results, and compared."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

import torch

from decoders import catalog
from workbench.measuring.work import Measured, Outputs
from workbench.runs import timing
from workbench.runs.figures import rows, uncertain
from workbench.runs.record import Agreement, Lap, Result, TokenRecord
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import is_engine
from workbench.studies.study import Job

# Seconds of computing, over all timings of a decoder, below which its speed means little.
LEAST_SECONDS = 0.5
MOST_MORE = 7  # timings of the one extension
PATIENCE_SECONDS = 6.0  # the most seconds that it takes


def laps_in_order(
    jobs: Sequence[Job], once_more: Callable[[Sequence[int], int], bool]
) -> Iterator[tuple[int, int]]:
    """The timings of a study, in order.

    First come all jobs once: the study has its texts then, and the rest is timing. The jobs of one
    repeat run in cycles, every second cycle in reverse order, so that a machine that gets slower or
    faster favours none of them.

    Args:
        jobs: the jobs of the study
        once_more: called with the numbers of a repeat's jobs and the lap, from 1; whether they run
            this lap

    Yields:
        (job's number, lap)
    """
    yield from ((number, 0) for number in range(len(jobs)))
    for _, block in groupby(range(len(jobs)), lambda i: jobs[i].repeat):
        numbers = list(block)
        for lap in count(1):
            if not once_more(numbers, lap):
                break
            yield from ((number, lap) for number in (reversed(numbers) if lap % 2 else numbers))


def extension(results: Sequence[Result], patience: float) -> int:
    """How many more timings of all these decoders may help to compare them; 0 if none.

    They help if one of them was timed for less than LEAST_SECONDS, or too unevenly. What is still
    uneven then is told: on a busy machine it would stay so.

    Args:
        results: the results so far, of at least one timing each
        patience: the seconds that the timings may take
    """
    if not results:
        return 0
    laps = len(results[0].laps)
    least = min(sum(lap.seconds for lap in r.laps) for r in results)
    if least >= LEAST_SECONDS and not any(uncertain(row) for row in rows(results)):
        return 0
    takes = sum(r.laps[-1].seconds for r in results)
    wanted = math.ceil(LEAST_SECONDS * laps / least) - laps if least > 0 else MOST_MORE
    afforded = int(patience / takes) if takes > 0 else MOST_MORE
    return max(0, min(max(wanted, laps), MOST_MORE, afforded))


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
        # At temperature 0 exact decoders write the tokens of greedy, except those that search;
        # others repeat their own, or those of the search whose beams they find, of the same seed.
        method = job.method.plain
        greedy = self._temperature == 0 and job.method.lossless and method is job.method
        method = catalog[BASELINE]() if greedy else method
        law = (method, 0 if greedy else job.seed, job.prompt)
        if law in self._found:
            return agreement(method.name, *self._found[law], result, outputs, self._dtype)
        if method == job.method:
            self._found[law] = result, outputs
        return None

    def greedy(self, prompt: int) -> Sequence[int] | None:
        """The tokens of greedy decoding after a prompt, once it has run at temperature 0."""
        for (method, _, _), (_, outputs) in self._found.items():
            if method.name == BASELINE and self._temperature == 0:
                return outputs.get(prompt)
        return None


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
    shared = _shared_log_probs(greedy[:at], other[:at])
    noise = max([torch.finfo(getattr(torch, dtype)).eps, *(abs(a - b) for a, b in shared)])
    gap = _gap(greedy[at], other[at].id) if at < shorter else None
    near_tie = gap is not None and gap <= 2 * noise
    return Agreement(name, len(both), len(differing), at, gap, noise, near_tie, dtype)


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


def compared(first: Measured, other: Measured, job: Job, temperature: float) -> Lap:
    """The other's lap, compared with the first.

    A decoder that watches the clock may draft differently each time, and then draws other tokens of
    the same law.
    """
    watches_clock = getattr(job.method, "draft_length", None) == "auto" and temperature > 0
    return replace(
        other.lap,
        same_rounds=first.rounds == other.rounds,
        same_tokens=watches_clock or dict(first.outputs) == dict(other.outputs),
    )


def timed_again(
    result: Result, first: Measured, other: Measured, job: Job, temperature: float, number: int
) -> Result:
    """The result with one timing more, or with a sentence on why that does not count.

    Args:
        result: the result so far
        first: its first timing
        other: the further one
        job: its job
        temperature: that of the study
        number: how many timings there are with this one
    """
    kept = len(result.laps)
    before = f"the {kept} before it count{'' if kept > 1 else 's'}."
    lengths = [sum(map(len, each.outputs.values())) for each in (first, other)]
    if other.result.errors:
        remark = f"Timing {number} failed ({other.result.errors[0]}); {before}"
    # Decoders draw the same tokens with the same seed; a server may not.
    elif is_engine(job.method.name) and lengths[0] != lengths[1]:
        remark = f"Timing {number} wrote {lengths[1]} tokens, not {lengths[0]}; {before}"
    else:
        return with_lap(result, compared(first, other, job, temperature))
    return replace(result, remarks=[*result.remarks, remark])


def with_lap(result: Result, lap: Lap) -> Result:
    """The result with one lap more; its seconds and its energy are estimated from all of them."""
    all_laps = [*result.laps, lap]
    spent = timing.energy(all_laps)
    metrics: dict[str, Any] = {
        **result.metrics,
        "seconds": timing.whole(all_laps),
        "decode_seconds": timing.after_first(all_laps),
        "joules": spent.joules,
        "energy_source": spent.source,
    }
    if metrics["seconds"] and metrics.get("new_tokens") is not None:
        metrics["tokens_per_second"] = metrics["new_tokens"] / metrics["seconds"]
    return replace(result, laps=all_laps, metrics=metrics, energy=spent)
