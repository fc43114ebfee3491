"""Enumerates the complete law of a decoder's output: made-up next-token tables stand in for the models, and a random source
that takes every way in turn stands in for the generator. Beside it stand the laws that decoders claim, restated plainly from
ALGORITHMS.md: they share no code with the decoders."""

import inspect
import itertools
import math
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch

from decoders.distribution import Distribution
from decoders.ledger import Ledger
from decoders.loop import Turn, read
from decoders.reading import Readings
from decoders.request import Request
from decoders.settings import Method
from decoders.trace import KEPT, Round, Trial, Trials
from decoders.warp import Warping

Path = tuple[int, ...]  # the tokens of a text, its prompt included
Law = dict[Any, float]
WHOLE = Warping()
NOTHING = 1e-14  # an outcome less likely than this is rounding


# ---- Models: functions from a path to the logits behind it


@dataclass(frozen=True)
class Drawn:
    """Logits drawn from a normal distribution, different behind every path: so no two texts are equally likely."""

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(np.random.default_rng([self.seed, *path]).normal(0, self.spread, self.V))


@dataclass(frozen=True)
class Rows:
    """Given probabilities: row i behind a path of i + 1 tokens, the last row behind every longer one."""

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(self.rows[min(len(path), len(self.rows)) - 1], dtype=torch.float64).log()


@dataclass(frozen=True)
class Situation:
    """What a decoder is run on; a failing test prints it so that it can be pasted."""

    target: Callable[[Path], torch.Tensor]
    draft: Callable[[Path], torch.Tensor]
    budget: int = 3
    warping: Warping = WHOLE
    end: frozenset[int] = frozenset()
    prompt: Path = (0,)
    references: tuple[Path, ...] = ()


def drawn(V: int = 3, seed: int = 0, **options: Any) -> Situation:
    return Situation(Drawn(V, 2 * seed), Drawn(V, 2 * seed + 1), **options)


@lru_cache(maxsize=100_000)
def logits(model: Callable[[Path], torch.Tensor], path: Path) -> torch.Tensor:
    return model(path)


# ---- Running a decoder, and running it every way it can go


class Source:
    """A random source that goes the way told by `choices`, then takes the first outcome each time, and notes the `untried`.

    `probability` is that of the way taken; a draw from something that is no distribution fails.
    """

    def __init__(self, choices: tuple[int, ...] = ()):
        self.choices = choices
        self.taken: list[int] = []
        self.untried: list[tuple[int, ...]] = []
        self.probability = 1.0

    def branch(self, outcomes: list[tuple[Any, float]]) -> Any:
        outcomes = [(value, p) for value, p in outcomes if p > NOTHING]
        place = len(self.taken)
        if place < len(self.choices):
            choice = self.choices[place]
        else:
            choice = 0
            self.untried += [(*self.taken, other) for other in range(1, len(outcomes))]
        self.taken.append(choice)
        value, probability = outcomes[choice]
        self.probability *= probability
        return value

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        outcomes = list(probs.items())
        assert abs(sum(p for _, p in outcomes) - 1) < 1e-9, f"{probs} is no distribution"
        return [self.branch(outcomes) for _ in range(count)]

    def chain(self, steps: int) -> Callable[[Distribution], int]:
        return lambda probs: self.draw(probs)[0]

    def accept(self, probability: float) -> tuple[bool, float]:
        p = min(1.0, probability)
        # The uniform number is the middle of those that decide this way.
        return self.branch([((True, p / 2), p), ((False, (1 + p) / 2), 1 - p)])


class Watched(Request):
    """A request that remembers the tips of each round, equal beams as often as they are alive."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.all_tips: list[list[int]] = []

    def commit(self, trials: Trials | list[Trial], tips: Sequence[int], *args: Any, **options: Any) -> Round:
        self.all_tips.append(list(tips))
        return super().commit(trials, tips, *args, **options)

    def path(self, node: int) -> Path:
        return tuple(self.tree.tokens[n] for n in self.tree.lineage(node))

    @property
    def output(self) -> Path:
        return tuple(self.tree.new_tokens(self.answer))


def decode(
    method: Method,
    situation: Situation,
    source: Any,
    *,
    request: type[Watched] = Watched,
    clock: Callable[[], float] | None = None,
    ledger: Ledger | None = None,
    stops: Callable[[list[int]], bool] | None = None,
    whole: bool = False,
) -> Watched:
    """Drive a decoder to its end as the loop would, with tables for models and a clock that ticks once a look.

    whole   take whole distributions, as of large vocabularies; these vocabularies are so small that else all of them are small
    """
    models = {"target": situation.target, "draft": situation.draft}
    r = request(
        situation.prompt,
        source=source,
        warping=method.warping(situation.warping),
        budget=situation.budget,
        end_tokens=situation.end,
        stops=stops,
        vocabulary=len(logits(situation.target, situation.prompt)),
        references=situation.references,
        ledger=ledger or Ledger(clock or itertools.count().__next__),
    )
    turn = Turn(0, r, method.decode(r))
    turn.start()
    while not turn.over:
        model = turn.waiting.model
        rows = torch.stack([logits(models[model], r.path(n)) for n in turn.missing()])
        r.ledger.count(model)
        r.ledger.charge(model)
        turn.answer(Readings(rows, 0) if whole else read(rows, [turn]))
    return r


class TooManyWays(Exception):
    """There are more ways to go than a test has time for."""


def outcomes(
    run: Callable[[Source], Any], *, source: type[Source] = Source, limit: int = 20_000
) -> Iterator[tuple[float, Any]]:
    """What `run` returns, every way its random source can go, with the probability of the way."""
    untried: list[tuple[int, ...]] = [()]
    total, count = 0.0, 0
    while untried:
        count += 1
        if count > limit:
            raise TooManyWays(f"more than {limit} ways; choose smaller settings")
        s = source(untried.pop())
        result = run(s)
        untried += s.untried
        total += s.probability
        yield s.probability, result
    assert abs(total - 1) < 1e-9, f"the probabilities of all ways sum to {total}"


def ways(
    method: Method, situation: Situation, *, source: type[Source] = Source, limit: int = 20_000, **options: Any
) -> Iterator[tuple[float, Watched]]:
    """Every way the decoder can go, with its probability."""
    return outcomes(lambda s: decode(method, situation, s, **options), source=source, limit=limit)


def output_law(method: Method, situation: Situation, **options: Any) -> Law:
    """The law of the new tokens."""
    law: Law = defaultdict(float)
    for probability, r in ways(method, situation, **options):
        law[r.output] += probability
    return law


def variation(a: Law, b: Law) -> float:
    """Total variation."""
    return sum(abs(a.get(x, 0.0) - b.get(x, 0.0)) for x in {*a, *b}) / 2


# ---- The laws that decoders claim


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


def layers(r: Watched) -> Iterator[tuple[tuple[Path, ...], tuple[Path, ...]]]:
    """The layers of one run of a beam decoder: (the live beams above, the beams of the layer in the order made)."""
    above = [r.path(r.tree.prompt_length - 1)]
    for entry, tips in zip(r.rounds, r.all_tips, strict=True):
        by_depth = defaultdict(list)
        for t in entry.trials:
            if t.fate in KEPT:
                by_depth[r.tree.depths[t.node]].append(r.path(t.node))
        for depth in sorted(by_depth):
            beams = tuple(by_depth[depth])
            yield tuple(above), beams
            above = [b for b in beams if b[-1] not in r.end_tokens]
        above = [r.path(n) for n in tips]


def layer_variation(method: Method, situation: Situation, **options: Any) -> float:
    """How far each layer's beams, given the layers above and their number, are from i.i.d. draws of p_beam: the total variation,
    in the mean over what they are given, added up over the layers."""
    seen: dict[Any, Law] = defaultdict(lambda: defaultdict(float))
    for probability, r in ways(method, situation, **options):
        history: tuple[Any, ...] = ()
        for above, beams in layers(r):
            seen[history, above, len(beams)][beams] += probability
            history += ((above, beams),)
    total = 0.0
    for (_, above, _), found in seen.items():
        p_beam = beam_probs(situation, method.warping(situation.warping), above)
        claimed = {beams: math.prod(p_beam.get(b, 0.0) for b in beams) for beams in found}
        mass = sum(found.values())
        total += sum(abs(found[b] - mass * claimed[b]) for b in found) / 2 + mass * (1 - sum(claimed.values())) / 2
    return total


def distance(method: Method, situation: Situation, *, law: str | None = None, **options: Any) -> float:
    """How far a decoder is from the law it declares (or from `law`), in total variation, by enumeration."""
    law, warping = law or method.law, method.warping(situation.warping)
    if law == "target":
        return variation(output_law(method, situation, **options), ancestral(situation, warping))
    if law == "beam sampling":
        expected = beam_sampling(situation, warping, cast(Any, method).beams)  # decoders that claim this law have beams
        return variation(output_law(method, situation, **options), expected)
    assert law == "beam sampling per layer", f"the oracle knows no law {law!r}"
    return layer_variation(method, situation, **options)


def assert_exact(method: Method, situation: Situation, **options: Any) -> None:
    d = distance(method, situation, **options)
    assert d < 1e-9, f"decoders.testing.distance({method!r}, {situation!r}, **{options!r}) is {d:.3g}"


# ---- Mistakes


def mutant(thing: Any, *edits: tuple[str, str], **names: Any) -> Any:
    """A class or function as it would be with a mistake in it: its module anew, `old` replaced by `new` in the source, which may use
    `names`."""
    module = sys.modules[thing.__module__]
    source = inspect.getsource(module)
    for old, new in edits:
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module.__name__}"
        source = source.replace(old, new)
    wrong = types.ModuleType(module.__name__)
    wrong.__dict__.update(names)
    exec(compile(source, f"{module.__file__} (mutant)", "exec"), wrong.__dict__)
    return getattr(wrong, thing.__name__)


def last_of_equals(x: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """A top-k that takes the last of equal values."""
    values, ids = x.flip(-1).sort(dim=dim, descending=True, stable=True)
    return values[..., :k], x.shape[-1] - 1 - ids[..., :k]
