"""The laws that decoders claim, restated plainly from ALGORITHMS.md: they share no code with the decoders."""

import itertools
import math
from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np

from decoders.testing.situations import Path, Situation, logits
from decoders.warp import Warping

Law = dict[Any, float]


def variation(a: Law, b: Law) -> float:
    """Total variation."""
    return sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


def warp(row: Any, warping: Warping) -> np.ndarray:
    """Temperature, top-k, top-p by the book: the tokens in order of likelihood, ties to the lower id."""
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
    """Of the new tokens under the raw target."""
    new = range(len(situation.prompt), len(path))
    return sum(logits(situation.target, path[:i]).log_softmax(-1)[path[i]].item() for i in new)


def ancestral(situation: Situation, warping: Warping) -> Law:
    """One token at a time from the warped target, up to an end token or the budget."""
    law: Law = {}

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
def beam_probs(situation: Situation, warping: Warping, live: tuple[Path, ...]) -> Law:
    """p_beam over the paths of the next layer: one entry for each (copy of a beam, token), warped as one row."""
    pairs = [(path, token) for path in live for token in range(len(logits(situation.target, path)))]
    law: Law = defaultdict(float)
    for (path, token), p in zip(
        pairs, warp([log_likelihood(situation, (*b, x)) for b, x in pairs], warping), strict=True
    ):
        if p > 0:
            law[*path, token] += float(p)
    return law


def beam_states(situation: Situation, warping: Warping, width: int, steps: int) -> Law:
    """The law of (live beams, ended beams) after some steps: W draws a step with replacement; beams that end are set aside."""
    states: Law = {((situation.prompt,), ()): 1.0}
    for _ in range(steps):
        following: Law = defaultdict(float)
        for (live, ended), probability in states.items():
            if not live:
                following[live, ended] += probability
                continue
            for draws in itertools.product(beam_probs(situation, warping, live).items(), repeat=width):
                beams = sorted(path for path, _ in draws)
                over = [b for b in beams if b[-1] in situation.end]
                state = tuple(b for b in beams if b not in over), (*ended, *over)
                following[state] += probability * math.prod(p for _, p in draws)
        states = following
    return states


def beam_sampling(situation: Situation, warping: Warping, width: int) -> Law:
    """The answer of beam sampling: the text of lowest perplexity among live and ended beams."""
    law: Law = defaultdict(float)
    prompt = len(situation.prompt)
    for (live, ended), probability in beam_states(situation, warping, width, situation.budget).items():
        best = max([*ended, *live], key=lambda b: log_likelihood(situation, b) / (len(b) - prompt))
        law[best[prompt:]] += probability
    return law
