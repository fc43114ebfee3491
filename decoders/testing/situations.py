"""Made-up language models, situations to run a decoder in, and the laws that decoders claim there.

A model is a function from a path to logits. The laws are restated plainly: they share no code with
the decoders.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from decoders.distribution import Warping
from decoders.settings import Law

Mixed = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from p and q (V,) to pi (V,)


def ensemble(rule: Any) -> Mixed:
    """w p + (1 - w) q (arXiv 2502.01662)."""
    return lambda p, q: rule.weight * p + (1 - rule.weight) * q


def cascade(rule: Any) -> Mixed:
    """The token rule or OPT (arXiv 2405.19261)."""

    def mixed(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        if rule.defer == "token":
            ok = p >= (1 - rule.alpha) * p.max()
            return q * ok + p * q[~ok].sum()
        least = p.max() - rule.alpha * np.abs(p - q).sum() / 2
        return q if q.max() >= least - 1e-12 else p  # ties may be rounded

    return mixed


Path = tuple[int, ...]  # the tokens of a text, its prompt included
WHOLE = Warping()
Chances = dict[Any, float]  # from an outcome to its probability


@dataclass(frozen=True)
class Drawn:
    """Logits drawn from a normal distribution, different after every path, so no two texts tie.

    Attributes:
        V: vocabulary size
        seed: of the generator
        spread: standard deviation
    """

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(
            np.random.default_rng([self.seed, *path]).normal(0, self.spread, self.V)
        )


@dataclass(frozen=True)
class Rows:
    """Fixed probabilities.

    Attributes:
        rows: row i holds after a path of i + 1 tokens, the last row after every longer one
    """

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(
            self.rows[min(len(path), len(self.rows)) - 1], dtype=torch.float64
        ).log()


@dataclass(frozen=True)
class Situation:
    """The models and options that a decoder is run with; a failing test prints it, ready to paste.

    Attributes:
        target: logits after a path
        draft: logits after a path; with `features` a head, which takes the states of the last
            layer besides, up to where the target has read
        budget: most new tokens
        warping: how logits become the distribution that is sampled
        end: ids that end the output
        prompt: the tokens of the prompt
        references: texts, as tokens, that drafts may copy from
        features: for each layer of the target, its hidden state at the end of a path
    """

    target: Callable[[Path], torch.Tensor]
    draft: Callable[..., torch.Tensor]
    budget: int = 3
    warping: Warping = WHOLE
    end: frozenset[int] = frozenset()
    prompt: Path = (0,)
    references: tuple[Path, ...] = ()
    features: tuple[Callable[[Path], torch.Tensor], ...] = ()


def drawn(V: int = 3, seed: int = 0, **options: Any) -> Situation:
    return Situation(Drawn(V, 2 * seed), Drawn(V, 2 * seed + 1), **options)


@lru_cache(maxsize=100_000)
def logits(model: Callable[[Path], torch.Tensor], path: Path) -> torch.Tensor:
    return model(path)


@lru_cache(maxsize=100_000)
def drafted(situation: Situation, path: Path, length: int) -> torch.Tensor:
    """The draft's logits after a path whose first `length` tokens the target has seen."""
    if not situation.features:
        return situation.draft(path)
    return situation.draft(
        path, tuple(situation.features[-1](path[: i + 1]) for i in range(length))
    )


def variation(a: Chances, b: Chances) -> float:
    return sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


def warp(row: Any, warping: Warping) -> np.ndarray:
    """By definition, tokens by falling likelihood, ties by rising id.

    Temperature, top-nσ, top-k, top-p, min-p; or the temperature last.
    """
    row = np.asarray(row, dtype=np.float64)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if warping.temperature == 0:
        return np.eye(len(row))[order[0]]
    with np.errstate(over="ignore"):  # of a tiny temperature
        weights = np.exp((row - row[order[0]]) / warping.temperature)
    views = np.exp(row - row[order[0]]) if warping.temperature_last else weights
    n = warping.top_n_sigma
    lowest = row[order[0]] - n * row[np.isfinite(row)].std() if n else -math.inf
    candidates = [i for i in order if row[i] >= lowest][: warping.top_k or None]
    mass, ids = 0.0, []
    for i in candidates:
        if mass >= warping.top_p * views[candidates].sum() and warping.top_p < 1:
            break
        ids.append(i)
        mass += views[i]
    ids = [i for i in ids if views[i] >= warping.min_p * views[order[0]]]
    probs = np.zeros(len(row))
    probs[ids] = weights[ids] / weights[ids].sum()
    return probs


@lru_cache(maxsize=100_000)
def log_likelihood(situation: Situation, path: Path) -> float:
    """The log-likelihood (nats) of the new tokens under the raw target."""
    return sum(
        logits(situation.target, path[:i]).log_softmax(-1)[path[i]].item()
        for i in range(len(situation.prompt), len(path))
    )


def ancestral(
    situation: Situation,
    warping: Warping,
    mixed: Mixed | None = None,
) -> Chances:
    """The law of drawing token by token from the warped target, or its mixture with the draft."""
    law: Chances = {}

    def extend(path: Path, probability: float) -> None:
        new = path[len(situation.prompt) :]
        if len(new) == situation.budget or (new and new[-1] in situation.end):
            law[new] = probability
            return
        row = warp(logits(situation.target, path), warping)
        if mixed:
            row = mixed(row, warp(drafted(situation, path, 0), warping))
        for token, p in enumerate(row):
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


def beam_search(
    situation: Situation, width: int, penalty: float, early: bool | str
) -> tuple[list[tuple[Path, ...]], Path, str]:
    """The beams of each layer of a beam search, live ones first; its answer, and why it ends.

    Scores are added in float32. Of equal ones the earlier beam and the lower token come first.
    """
    prompt, end, budget = situation.prompt, situation.end, situation.budget
    live, done, layers = [(prompt, 0.0)], list[tuple[float, Path]](), list[tuple[Path, ...]]()
    for length in range(1, budget + 1):
        scored = [
            ((*path, token), float(np.float32(score) + np.float32(log_p)))
            for path, score in live
            for token, log_p in enumerate(logits(situation.target, path).log_softmax(-1).tolist())
        ]
        scored.sort(key=lambda beam: -beam[1])
        if width == 1:
            scored = scored[:1]
        over = [b for b in scored[:width] if b[0][-1] in end or length == budget]
        live = [b for b in scored if b[0][-1] not in end and length < budget][:width]
        layers.append(tuple(path for path, _ in (*live, *over)))
        done += [(score / length**penalty, path) for path, score in over]
        done = sorted(done, key=lambda beam: -beam[0])[:width]
        full = len(done) == width
        reach = budget if early == "never" and penalty > 0 else length
        if not live or (full and (early is True or not live[0][1] / reach**penalty > done[-1][0])):
            break
    answer = done[0][1]
    return layers, answer[len(prompt) :], "end of sequence" if answer[-1] in end else "budget"


# The laws that are about whole outputs, each as it is for a method with these settings.
OUTPUTS: dict[Law, Callable[[Situation, Warping, Any], Chances]] = {
    Law.TARGET: lambda s, warping, method: ancestral(s, warping),
    Law.BEAM_SAMPLING: lambda s, warping, method: beam_sampling(s, warping, method.beams),
    Law.CASCADE: lambda s, warping, method: ancestral(s, warping, cascade(method.parts[1])),
    Law.ENSEMBLE: lambda s, warping, method: ancestral(s, warping, ensemble(method.parts[1])),
}
