"""Enumerates the complete law of a decoder's output.

Made-up next-token tables stand in for the models, and a random source that takes every way in turn
stands in for the generator.
"""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from decoders.distribution import Distribution
from decoders.errors import refuse
from decoders.loop import Turn, read
from decoders.reading import Readings
from decoders.request import Request
from decoders.settings import Law, Method
from decoders.testing.situations import (
    OUTPUTS,
    Chances,
    Path,
    Situation,
    beam_probs,
    beam_search,
    drafted,
    logits,
    variation,
)
from decoders.trace import KEPT, Ledger, Round, Trial

NOTHING = 1e-14  # an outcome less likely than this is a rounding error
HIDDEN = (
    "The function draws from elsewhere than `source`, so nothing is said of its distribution: take "
    "every random choice from source.accept(probability) or source.draw(weights)."
)


class Branches:
    """A random source that takes the outcomes that `choices` tells, then the first one each time.

    Every other outcome on the way is added to `untried`. `probability` is that of the way taken. A
    draw from something that is no distribution fails.
    """

    def __init__(self, choices: tuple[int, ...] = ()):
        self.choices = choices
        self.taken: list[int] = []
        self.untried: list[tuple[int, ...]] = []
        self.probability = 1.0

    def branch(self, outcomes: list[tuple[Any, float]]) -> Any:
        outcomes = [(value, p) for value, p in outcomes if p > NOTHING]
        choice = self.choices[len(self.taken) : len(self.taken) + 1]
        if not choice:
            self.untried += [(*self.taken, other) for other in range(1, len(outcomes))]
        self.taken += choice or (0,)
        refuse((self.taken[-1] >= len(outcomes), HIDDEN))
        value, probability = outcomes[self.taken[-1]]
        self.probability *= probability
        return value

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        outcomes = list(probs.items())
        assert abs(sum(p for _, p in outcomes) - 1) < 1e-9, f"{probs} is no distribution"
        return [self.branch(outcomes) for _ in range(count)]

    def chain(self, steps: int | None) -> Callable[[Distribution], int]:
        return lambda probs: self.draw(probs)[0]

    def accept(self, probability: float) -> tuple[bool, float]:
        p = min(1.0, probability)
        # The uniform number is the middle of those that decide this way.
        return self.branch([((True, p / 2), p), ((False, (1 + p) / 2), 1 - p)])


class Watched(Request):
    """A request that records the tips of each round, equal beams as often as they are alive."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.all_tips: list[list[int]] = []

    def commit(self, trials: list[Trial], tips: Sequence[int], *args: Any, **options: Any) -> Round:
        self.all_tips.append(list(tips))
        return super().commit(trials, tips, *args, **options)

    def path(self, node: int) -> Path:
        return tuple(self.tree.text(node))

    @property
    def output(self) -> Path:
        return tuple(self.tree.new_tokens(self.answer))


def decode(
    method: Method,
    situation: Situation,
    source: Any,
    *,
    request: type[Watched] = Watched,
    ledger: Ledger | None = None,
    stops: Callable[[list[int]], bool] | None = None,
    whole: bool = False,
) -> Watched:
    """Drive a decoder to its end as the loop would, with tables for models and a ticking clock.

    With `whole`, all distributions are whole, as they are for large vocabularies.
    """
    r = request(
        situation.prompt,
        source=source,
        warping=method.warping(situation.warping),
        budget=situation.budget,
        end_tokens=situation.end,
        stops=stops,
        vocabulary=len(logits(situation.target, situation.prompt)),
        references=situation.references,
        ledger=ledger or Ledger(itertools.count().__next__),
    )
    turn = Turn(0, r, method.decode(r))
    turn.start()
    visible: set[int] = set()  # by the target
    while not turn.over:
        model, nodes = turn.waiting.model, turn.missing()
        if model == "target":
            rows = torch.stack([logits(situation.target, r.path(n)) for n in nodes])
            visible.update(*map(r.tree.lineage, nodes))
        else:
            said = [
                drafted(situation, r.path(n), len(visible & {*r.tree.lineage(n)})) for n in nodes
            ]
            rows = torch.stack(said)
        r.ledger.count(model)
        r.ledger.charge(model)
        readings = list(Readings(rows, 0) if whole else read(rows, [turn], model != "target"))
        turn.answer(readings)
    return r


class TooManyWays(Exception):
    """More ways to go than a test has time for."""


def outcomes(
    run: Callable[[Branches], Any], *, source: type[Branches] = Branches, limit: int = 20_000
) -> Iterator[tuple[float, Any]]:
    """The probability and result of `run` for every way its random source can go.

    Raises:
        TooManyWays: for more than `limit` ways
        InputError: if it draws from elsewhere, so that its ways do not sum to one
    """
    # The shortest come first: they branch most, so too many are soon known to be.
    untried: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    total, count = 0.0, 0
    while untried:
        if count + len(untried) > limit:
            raise TooManyWays(f"more than {limit} ways; choose smaller settings")
        count += 1
        s = source(heapq.heappop(untried)[1])
        result = run(s)
        for choices in s.untried:
            heapq.heappush(untried, (len(choices), choices))
        total += s.probability
        yield s.probability, result
    refuse((abs(total - 1) > 1e-9, HIDDEN))


def ways(
    method: Method,
    situation: Situation,
    *,
    source: type[Branches] = Branches,
    limit: int = 20_000,
    **options: Any,
) -> Iterator[tuple[float, Watched]]:
    """Every way the decoder can go, with its probability; options as `decode`."""
    return outcomes(lambda s: decode(method, situation, s, **options), source=source, limit=limit)


def output_law(method: Method, situation: Situation, **options: Any) -> Chances:
    """The law of the new tokens; options as `ways`."""
    law: Chances = defaultdict(float)
    for probability, r in ways(method, situation, **options):
        law[r.output] += probability
    return law


# ---- How far a decoder is from its law


def layers(r: Watched) -> Iterator[tuple[tuple[Path, ...], tuple[Path, ...]]]:
    """The layers of one run of a beam decoder: the live beams above, and its beams as made."""
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
    """How far each layer's beams are from i.i.d. draws of p_beam.

    This is the total variation given the layers above and the number of beams, in the mean over
    these, added up over the layers.
    """
    laws: dict[Any, Chances] = defaultdict(lambda: defaultdict(float))
    for probability, r in ways(method, situation, **options):
        history: tuple[Any, ...] = ()
        for above, beams in layers(r):
            laws[history, above, len(beams)][beams] += probability
            history += ((above, beams),)
    total = 0.0
    for (_, above, _), law in laws.items():
        p_beam = beam_probs(situation, method.warping(situation.warping), above)
        claimed = {beams: math.prod(p_beam.get(b, 0.0) for b in beams) for beams in law}
        mass = sum(law.values())
        total += (
            sum(abs(law[b] - mass * claimed[b]) for b in law) / 2
            + mass * (1 - sum(claimed.values())) / 2
        )
    return total


def distance(method: Any, situation: Situation, *, law: str | None = None, **options: Any) -> float:
    """The total variation between a decoder's law and the law it declares (or `law`)."""
    claimed = Law(str(law or method.law))
    if claimed.certain:
        # The chance that the layers, the answer or the end are not those of beam search.
        beams = beam_search(situation, method.beams, method.length_penalty, method.early_stopping)
        return sum(
            probability
            for probability, r in ways(method, situation, **options)
            if ([each for _, each in layers(r)], r.output, r.finished) != beams
        )
    if claimed not in OUTPUTS:
        return layer_variation(method, situation, **options)
    expected = OUTPUTS[claimed](situation, method.warping(situation.warping), method)
    return variation(output_law(method, situation, **options), expected)


def assert_exact(
    method: Method, situation: Situation, *, law: str | None = None, **options: Any
) -> None:
    d = distance(method, situation, law=law, **options)
    assert d < 1e-9, (
        f"{method.name} does not have the law {str(law or method.law)!r}: "
        f"decoders.testing.distance({method!r}, {situation!r}, law={law!r}) is {d:.3g}"
    )
