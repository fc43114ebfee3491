"""The laws that decoders claim, restated plainly: they share no code with the decoders."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from decoders.settings import Law
from decoders.testing.situations import Path, Situation, logits
from decoders.warp import Warping

Chances = dict[Any, float]  # from an outcome to its probability


def variation(a: Chances, b: Chances) -> float:
    """Total variation."""
    return sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


def warp(row: Any, warping: Warping) -> np.ndarray:
    """Temperature, top-k, top-p by definition: tokens by falling likelihood, ties by rising id."""
    row = np.asarray(row, dtype=np.float64)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if warping.temperature == 0:
        return np.eye(len(row))[order[0]]
    with np.errstate(over="ignore"):  # of a tiny temperature
        weights = np.exp((row - row[order[0]]) / warping.temperature)
    candidates = order[: warping.top_k or None]
    mass, kept = 0.0, []
    for i in candidates:
        if mass >= warping.top_p * weights[candidates].sum() and warping.top_p < 1:
            break
        kept.append(i)
        mass += weights[i]
    probs = np.zeros(len(row))
    probs[kept] = weights[kept] / mass
    return probs


@lru_cache(maxsize=100_000)
def log_likelihood(situation: Situation, path: Path) -> float:
    """The log-likelihood (nats) of the new tokens under the raw target."""
    new = range(len(situation.prompt), len(path))
    return sum(logits(situation.target, path[:i]).log_softmax(-1)[path[i]].item() for i in new)


def ancestral(situation: Situation, warping: Warping) -> Chances:
    """The law of sampling one token at a time from the warped target.

    It goes on to an end token or the budget.
    """
    law: Chances = {}

    def extend(path: Path, probability: float) -> None:
        new = path[len(situation.prompt) :]
        if len(new) == situation.budget or (new and new[-1] in situation.end):
            law[new] = probability
            return
        for token, p in enumerate(warp(logits(situation.target, path), warping)):
            if p > 0:
                extend((*path, token), probability * float(p))

    extend(situation.prompt, 1.0)
    return law


@lru_cache(maxsize=20_000)
def beam_probs(situation: Situation, warping: Warping, live: tuple[Path, ...]) -> Chances:
    """p_beam over the paths of the next layer.

    It has one entry for each (copy of a beam, token), and all are warped as one row.
    """
    pairs = [(path, token) for path in live for token in range(len(logits(situation.target, path)))]
    law: Chances = defaultdict(float)
    for (path, token), p in zip(
        pairs, warp([log_likelihood(situation, (*b, x)) for b, x in pairs], warping), strict=True
    ):
        if p > 0:
            law[*path, token] += float(p)
    return law


def beam_states(situation: Situation, warping: Warping, width: int, steps: int) -> Chances:
    """The law of (live beams, ended beams) after some steps.

    Each step draws `width` continuations with replacement; beams that end are set aside.
    """
    states: Chances = {((situation.prompt,), ()): 1.0}
    for _ in range(steps):
        following: Chances = defaultdict(float)
        for (live, ended), probability in states.items():
            if not live:
                following[live, ended] += probability
                continue
            for draws in itertools.product(
                beam_probs(situation, warping, live).items(), repeat=width
            ):
                beams = sorted(path for path, _ in draws)
                over = [b for b in beams if b[-1] in situation.end]
                state = tuple(b for b in beams if b not in over), (*ended, *over)
                following[state] += probability * math.prod(p for _, p in draws)
        states = following
    return states


def beam_sampling(situation: Situation, warping: Warping, width: int) -> Chances:
    """The law of beam sampling's answer: of live and ended beams, the one of lowest perplexity."""
    law: Chances = defaultdict(float)
    prompt = len(situation.prompt)
    for (live, ended), probability in beam_states(
        situation, warping, width, situation.budget
    ).items():
        best = max([*ended, *live], key=lambda b: log_likelihood(situation, b) / (len(b) - prompt))
        law[best[prompt:]] += probability
    return law


# The laws that are about whole outputs, each as it is for a method with these settings.
OUTPUTS: dict[Law, Callable[[Situation, Warping, Any], Chances]] = {
    Law.TARGET: lambda situation, warping, method: ancestral(situation, warping),
    Law.BEAM_SAMPLING: lambda situation, warping, method: beam_sampling(
        situation, warping, method.beams
    ),
}
