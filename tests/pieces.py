"""Runs one piece of a decoder alone: a draft source, or a rule at one node."""

from collections.abc import Callable, Generator
from typing import Any

import torch

from decoders.drafts.draft import Draft
from decoders.drafts.tree import Sampler, with_replacement
from decoders.request import Request
from decoders.rules.walk import Rule
from decoders.sampling import SeededSource
from decoders.testing.oracle import Path, Source
from decoders.warp import Warping


def request(
    prompt: Path, *, source: Any = None, budget: int = 100, warping: Warping | None = None, **options: Any
) -> Request:
    return Request(prompt, source or SeededSource(0), warping or Warping(), budget, **options)


def propose(r: Request, drafting: Generator, model: Callable[[Path], torch.Tensor] | None = None) -> tuple[Draft, int]:
    """Run a draft source to its end with a table for its model; the draft, and how many passes that took."""
    answer, passes = None, 0
    while True:
        try:
            ask = drafting.send(answer)
        except StopIteration as stop:
            return stop.value, passes
        paths = [tuple(r.tree.tokens[n] for n in r.tree.lineage(node)) for node in ask.nodes]
        answer, passes = torch.stack([model(path) for path in paths]), passes + 1


def commit(r: Request, tokens: Path) -> None:
    """Let the output grow by these tokens."""
    tip = r.tip
    for token in tokens:
        tip = r.tree.add(tip, token)
    r.advance([], tip)


def at_one_node(
    rule: Rule, p: torch.Tensor, q: torch.Tensor, k: int, sample: Sampler = with_replacement
) -> tuple[torch.Tensor, float]:
    """The law (V,) of the token that comes out where k children were drawn from q, and the chance that it is one of them."""
    law, accepted, untried = torch.zeros_like(p), 0.0, [()]
    while untried:
        source = Source(untried.pop())
        tokens = sample(source, q, k)
        pick = rule.pick(p, q, tokens, p.log(), source)
        token = tokens[len(pick.tests) - 1] if pick.kept else source.draw(pick.rest)[0]
        law[token] += source.probability
        accepted += source.probability * pick.kept
        untried += source.untried
    return law, accepted


def distributions(seed: int, V: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """A target and a draft distribution in float64; two of three pairs have zeros, in different places."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(2, V, generator=generator, dtype=torch.float64) ** 2
    if seed % 3:
        rows[torch.arange(2), torch.randint(V, (2,), generator=generator)] = 0
    p, q = rows / rows.sum(-1, keepdim=True)
    return p, q
