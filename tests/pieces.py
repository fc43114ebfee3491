"""Runs one piece of a decoder alone: a draft source, or a rule at one node."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Warping, Whole
from decoders.methods.named import Combination
from decoders.methods.rules import Node, NodeWise
from decoders.methods.sources import Draft, Sampler, with_replacement
from decoders.reading import Reading, Readings
from decoders.request import Request, SeededSource
from decoders.settings import setting
from decoders.testing.oracle import Branches
from decoders.testing.situations import Path

SOURCE, RULE = setting(None, "a source"), setting(None, "a rule")


@dataclass(frozen=True)
class HeadTable:
    """A draft that reads the target's hidden states.

    The logits after a path differ for all states of the part that the target has seen, and for all
    tokens after that part."""

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        numbers = [round(1e6 * abs(x)) for state in states for x in state.tolist()]
        key = [self.seed, len(numbers), *numbers, *path[len(states) :]]
        return torch.tensor(np.random.default_rng(key).normal(0, self.spread, self.V))


@dataclass(frozen=True)
class Made(Combination):
    """A decoder of these two parts."""

    name = "made"

    source: Any = SOURCE
    judge: Any = RULE

    @property
    def parts(self):
        return self.source, self.judge


def request(
    prompt: Path,
    *,
    source: Any = None,
    budget: int = 100,
    warping: Warping | None = None,
    **options: Any,
) -> Request:
    return Request(
        prompt,
        source=source or SeededSource(0),
        warping=warping or Warping(),
        budget=budget,
        **options,
    )


def propose(
    r: Request, drafting: Generator, model: Callable[[Path], torch.Tensor] | None = None
) -> tuple[Draft, int]:
    """Run a draft source to its end over a table: the draft and the number of passes."""
    answer, passes = None, 0
    while True:
        try:
            ask = drafting.send(answer)
        except StopIteration as stop:
            return stop.value, passes
        paths = [tuple(r.tree.tokens[n] for n in r.tree.lineage(node)) for node in ask.nodes]
        rows = torch.stack([model(path) for path in paths])
        answer, passes = list(Readings(rows, 9)), passes + 1


def commit(r: Request, tokens: Path) -> None:
    """Let the output grow by these tokens."""
    tip = r.tip
    for token in tokens:
        tip = r.tree.add(tip, token)
    r.advance([], tip)


def small(probs: torch.Tensor) -> Small:
    return Small({x: m for x, m in enumerate(probs.tolist()) if m > 0})


FORMS: dict[str, Callable[[torch.Tensor], Distribution]] = {"small": small, "whole": Whole}


def reading(probs: torch.Tensor) -> Reading:
    """The reading of a pass that gives these probabilities (V,)."""
    return next(iter(Readings(probs.log()[None], 9)))


def at_one_node(
    rule: NodeWise,
    p: torch.Tensor,
    q: torch.Tensor,
    k: int,
    sample: Sampler = with_replacement,
    distinct: bool = False,
) -> tuple[torch.Tensor, float]:
    """The law (V,) of the token that comes out if k children were drawn from q.

    And the chance that it is one of them; the same in any mixture of forms."""
    found = [
        _at_one_node(rule, P(p), Q(q), reading(p), k, sample, distinct)
        for P in FORMS.values()
        for Q in FORMS.values()
    ]
    for law, accepted in found[1:]:
        torch.testing.assert_close(law, found[0][0], atol=1e-12, rtol=0)
        assert abs(accepted - found[0][1]) < 1e-12
    return found[0]


def _at_one_node(rule, p, q, target: Reading, k: int, sample: Sampler, distinct: bool):
    law, accepted, untried = torch.zeros(target.size, dtype=torch.float64), 0.0, [()]
    while untried:
        source = Branches(untried.pop())
        tokens = sample(source, q, k)
        pick = rule.pick(Node(p, q, tokens, target, distinct=distinct), source)
        token = tokens[len(pick.tests) - 1] if pick.accepted else source.draw(pick.rest)[0]
        law[token] += source.probability
        accepted += source.probability * pick.accepted
        untried += source.untried
    return law, accepted


def distributions(seed: int, V: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Target and draft in float64; two of three pairs have zeros, in different places."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(2, V, generator=generator, dtype=torch.float64) ** 2
    if seed % 3:
        rows[torch.arange(2), torch.randint(V, (2,), generator=generator)] = 0
    p, q = rows / rows.sum(-1, keepdim=True)
    return p, q


def last_of_equals(x: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
    """`topk` that prefers the higher id of equals, as torch may."""
    values, ids = x.flip(-1).sort(dim=dim, descending=True, stable=True)
    return values[..., :k], x.shape[-1] - 1 - ids[..., :k]
