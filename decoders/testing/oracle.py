"""Enumerates the complete law of a decoder's output: made-up next-token tables stand in for the models, and a random source
that takes every way in turn stands in for the generator."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch

from decoders.distribution import Distribution
from decoders.ledger import Ledger
from decoders.loop import Turn, read
from decoders.reading import Readings
from decoders.request import Request
from decoders.settings import Method
from decoders.testing.laws import Law, ancestral, beam_probs, beam_sampling, variation
from decoders.testing.situations import Path, Situation, logits
from decoders.trace import KEPT, Round, Trial, Trials

NOTHING = 1e-14  # an outcome less likely than this is rounding


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


# ---- How far a decoder is from its law


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
