"""Speed-ups from timings of the same prompts: each decoder's speed over greedy's.

Acceptance is teacher-forced: the target writes texts, and at each place of a text the draft model's
token is accepted with the chance beta = 1 - TV(p, q) of the warped distributions (Leviathan et al.
2023, arXiv 2211.17192, theorem 3.5). Their theorem 3.8 assumes one alpha for all places; here each
place has its own chance, and the rounds are summed over them. A round's seconds are measured at a
few draft lengths.

Speed-ups are predicted and measured, with 95% intervals over the prompts. Every figure is computed
once from all prompts, and once from each resample of them. The resamples are the same for all
decoders, so that figures are paired. On a machine that others use, intervals are wide.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from decoders import InputError, catalog
from workbench.experiments.figures import COVERED, LEAST_ITEMS, RESAMPLES, Interval
from workbench.kinds.advice.study import LENGTHS, TIMED_LENGTHS
from workbench.kinds.advice.timings import Costs, Findings, Line, Timed, between
from workbench.studies.schemes import BASELINE


def tokens_per_round(betas: Sequence[float], length: int) -> float:
    """Tokens of a text over the expected number of rounds that write it.

    Rounds from place t on: R(t) = 1 + sum over k of P(k accepted) R(t + k + 1). No round drafts
    beyond the last token but one.

    Args:
        betas: the chance that a draft is accepted at each place of the text
        length: the draft length
    """
    count = len(betas)
    rounds = [0.0] * (count + length + 2)
    for start in range(count - 1, -1, -1):
        drafted = min(length, count - start - 1)
        kept, expected = 1.0, 1.0
        for k in range(drafted):
            expected += kept * (1 - betas[start + k]) * rounds[start + k + 1]
            kept *= betas[start + k]
        rounds[start] = expected + kept * rounds[start + drafted + 1]
    return count / rounds[0] if count else 0.0


def ranked(
    betas: Sequence[Sequence[float]], timed: Mapping[Any, Sequence[Timed]], temperature: float
) -> Findings:
    """Rank the decoders by their speed-up.

    Args:
        betas: for each prompt the chance of acceptance at each place of its text
        timed: for each decoder a timing of each prompt
        temperature: the sampling temperature

    Returns:
        the advice

    Raises:
        InputError: if the texts are too short to time
    """
    greedy = timed[catalog[BASELINE]()]
    steps = [fmean(t.rounds) if t.rounds else None for t in greedy]
    step, draft, rounds = _typical(steps), _typical(steps), {}
    for method, runs in timed.items():
        if method.name == "speculative":
            rounds[method.draft_length] = step * _over_greedy(runs, greedy, lambda t: t.rounds)
            if method.draft_length == max(TIMED_LENGTHS):
                draft = step * _over_greedy(runs, greedy, lambda t: t.drafting)
                draft /= method.draft_length
    rounds = {n: rounds[n] for n in TIMED_LENGTHS}
    # Beyond its steps a greedy text takes time to read the prompt, as with every decoder.
    reading = len(betas) * _typical(
        [max(0.0, t.seconds - t.tokens * fmean(t.rounds)) if t.rounds else None for t in greedy]
    )
    lines, total = [], _sum(map(len, betas))
    for length in LENGTHS:
        method = catalog["speculative"](draft_length=length)
        taken = _sum(len(b) / tokens_per_round(b, length) if b else 0.0 for b in betas)
        predicted = (total * step + reading) / (taken * between(rounds, length) + reading)
        runs = timed.get(method, [])
        interval, spent = _interval(predicted, len(betas)), _joules(runs)
        lines.append(Line(method, interval, _measured(runs, greedy), total[0] / taken[0], spent))
    for method, runs in timed.items():
        if method.name not in (BASELINE, "speculative"):
            tokens = sum(t.tokens for t in runs) / max(1, sum(t.gained for t in runs))
            lines.append(Line(method, None, _measured(runs, greedy), tokens, _joules(runs)))
    lines.sort(key=lambda line: -line.best.value)
    of_rounds = {n: float(each[0]) for n, each in rounds.items()}
    costs = Costs(float(step[0]), of_rounds, float(draft[0]))
    timings = [t for runs in timed.values() for t in runs]
    disturbed = Counter(reason for t in timings for reason in t.disturbed)
    alpha = fmean(x for b in betas for x in b)
    return Findings(alpha, costs, temperature, lines, len(timings), disturbed)


# ---- Figures of all prompts, then of each resample of them, (RESAMPLES + 1,)


@cache
def _picked(count: int) -> np.ndarray:
    """All of `count` prompts, then RESAMPLES resamples of them; (RESAMPLES + 1, count)."""
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    return np.vstack([np.arange(count), drawn])


def _sum(values: Iterable[float]) -> np.ndarray:
    each = np.array(list(values), dtype=float)
    return each[_picked(len(each))].sum(axis=1)


def _typical(values: Sequence[float | None]) -> np.ndarray:
    """Medians, which ignore disturbed prompts. A prompt without the figure counts as typical."""
    known = [value for value in values if value is not None]
    if not known:
        raise InputError(
            "The texts are too short to time; ask for more new tokens, or take other prompts."
        )
    each = np.array([np.median(known) if value is None else value for value in values])
    return np.median(each[_picked(len(each))], axis=1)


def _over_greedy(
    runs: Sequence[Timed], greedy: Sequence[Timed], of: Callable[[Timed], Sequence[float]]
) -> np.ndarray:
    """Mean seconds over those of greedy's rounds on the same prompt.

    Both ran close together, so a change of the machine's speed affects both.
    """
    both = [(of(a), b.rounds) for a, b in zip(runs, greedy, strict=True)]
    return _typical([fmean(own) / fmean(other) if own and other else None for own, other in both])


def _joules(runs: Sequence[Timed]) -> float | None:
    """Joules per token over all prompts."""
    spent = [t.joules for t in runs if t.joules is not None]
    return sum(spent) / sum(t.tokens for t in runs) if spent and len(spent) == len(runs) else None


def _measured(runs: Sequence[Timed], greedy: Sequence[Timed]) -> Interval | None:
    if not runs:
        return None
    own, other = (
        _sum(t.tokens for t in each) / _sum(t.seconds for t in each) for each in (runs, greedy)
    )
    return _interval(own / other, len(runs))


def _interval(found: np.ndarray, prompts: int) -> Interval:
    """The figure with its interval, which has no bounds if there are too few prompts."""
    low, high = np.percentile(found[1:], COVERED) if prompts >= LEAST_ITEMS else (0.0, np.inf)
    return Interval(float(found[0]), float(low), float(high))
