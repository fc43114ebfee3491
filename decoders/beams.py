"""Beams: a multiset of tree nodes with raw joint log-likelihoods, and the steps of beam sampling and beam search on them.

Draft and target beams are the same thing; the caller decides which model scores them.
"""

import math
from bisect import bisect_right
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from operator import neg

import numpy as np
import torch

from decoders.distribution import Distribution, Whole
from decoders.reading import Reading, small
from decoders.request import Ask, Request
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Round, Trial
from decoders.warp import Warping, top, warp


@dataclass(frozen=True, slots=True)
class Beam:
    """A node, and the raw joint log-likelihood (nats) of the tokens from where the beams began to it."""

    node: NodeId
    score: float


@dataclass(frozen=True, slots=True)
class BeamDraw:
    """A continuation of one beam. `parent` is the index of that beam: equal beams share a node, and one of them may live without the other."""

    parent: int
    token: TokenId
    beam: Beam


def highest(beams: Iterable[Beam]) -> float:
    """Their highest score; 0 if they are all impossible."""
    score = max(b.score for b in beams)
    return score if score > -math.inf else 0.0


class Joint:
    """The raw joint log-likelihoods of every continuation of W beams (mtad.txt eq. 2, dsbd.txt eq. 1, before normalising).

    The continuation of beam b by a token has the index b * V + token, as in a flattened (W, V) tensor. Values are less `origin`, by
    default the beams' highest score: the score of a long text would leave float32 no digits to tell its continuations apart.

    readings   of the beams' nodes, in the order of the beams;   rounded  compute in float32, as transformers' beam search does
    """

    def __init__(
        self, beams: Sequence[Beam], readings: Sequence[Reading], origin: float | None = None, rounded: bool = False
    ):
        self.beams, self.readings, self.rounded = beams, readings, rounded
        self.origin = highest(beams) if origin is None else origin
        self.size = readings[0].size

    def value(self, index: int) -> float:
        beam, token = divmod(index, self.size)
        return self._add(self.readings[beam].log_p(token), self.beams[beam].score - self.origin)

    def draw(self, request: Request, index: int, value: float | None = None) -> BeamDraw:
        """The continuation at an index, as a node of the tree."""
        parent, token = divmod(index, self.size)
        node = request.tree.add(self.beams[parent].node, token)
        return BeamDraw(parent, token, Beam(node, self.origin + (self.value(index) if value is None else value)))

    def warp(self, warping: Warping) -> Distribution:
        """p_beam or q_beam: the warping applied once, to the flattened joint."""
        count = 1 if warping.temperature == 0 else warping.top_k or None
        ids, values = self._likeliest(count)
        few = small(ids, values, len(self.beams) * self.size, lambda t: self._excess(values[0], t), warping)
        return few or Whole(warp(self.whole().flatten(), warping))

    def top(self, count: int | None) -> list[tuple[int, float]]:
        """The indices and values of the `count` largest, or of all, in falling order; the lower index first of equals."""
        if count is not None:
            ids, values = self._likeliest(count, fetch=True)
            return list(zip(ids[:count], values, strict=False))
        found, places = top(self.whole().flatten(), len(self.beams) * self.size)
        return list(zip(places.tolist(), found.tolist(), strict=True))

    def whole(self) -> torch.Tensor:
        """All values (W, V), where the model is."""
        rows = torch.stack([r.row for r in self.readings])
        scores = torch.tensor([b.score - self.origin for b in self.beams], dtype=rows.dtype, device=rows.device)
        return rows.log_softmax(-1) + scores[:, None]

    def _add(self, log_p: float, score: float) -> float:
        return float(np.float32(log_p) + np.float32(score)) if self.rounded else log_p + score

    def _likeliest(self, count: int | None, fetch: bool = False) -> tuple[list[int], list[float]]:
        """The likeliest continuations in falling order, as far as the beams' likeliest tokens show them.

        count   how many are needed; None for as many as there are;   fetch  whether to fetch what was not read
        """
        lists, edge, least = [], -math.inf, -math.inf
        for beam, reading in zip(self.beams, self.readings, strict=True):
            ids, logits = reading.likeliest(count if fetch else None)
            ids, logits = ids[:count], logits[:count]
            score, log_sum = beam.score - self.origin, reading.log_sum
            if self.rounded:
                values = [self._add(x - log_sum, score) for x in logits]
            else:
                values = [x - log_sum + score for x in logits]
            lists.append((ids, values))
            if len(ids) == count:  # nothing less likely than the last of these is among the likeliest of all
                least = max(least, values[-1])
            elif len(ids) < self.size:  # it has likelier continuations than these after its last
                edge = max(edge, values[-1]) if ids else math.inf
        found: list[tuple[float, int]] = []
        for b, (ids, values) in enumerate(lists):
            near = values[: bisect_right(values, -least, key=neg)]
            found += [(-v, b * self.size + i) for i, v in zip(ids, near, strict=False)]
        found.sort()
        if edge > -math.inf:
            found = [(v, i) for v, i in found if -v > edge]
        return [i for _, i in found], [-v for v, _ in found]

    def _excess(self, highest: float, temperature: float) -> float:
        """The log of the sum, over all continuations, of exp((value - highest) / temperature)."""
        parts = [
            r.excess(temperature) + (r.likeliest(1)[1][0] - r.log_sum + b.score - self.origin - highest) / temperature
            for b, r in zip(self.beams, self.readings, strict=True)
        ]
        most = max(parts)
        return most + math.log(sum(math.exp(x - most) for x in parts))


def draw_beams(request: Request, joint: Joint, probs: Distribution, count: int) -> list[BeamDraw]:
    """`count` continuations, drawn i.i.d. with replacement from probs."""
    indices = request.source.draw(probs, count)
    draws = {index: joint.draw(request, index) for index in dict.fromkeys(indices)}
    return [draws[index] for index in indices]


def best(request: Request, beams: Sequence[Beam]) -> Beam:
    """The beam with the lowest perplexity, exp(-score / length); the earliest of equals."""
    return max(beams, key=lambda b: b.score / request.tree.new_length(b.node))


def drawn_trials(joint: Joint, draws: Sequence[BeamDraw], p_beam: Distribution, fates: Sequence[Fate]) -> list[Trial]:
    """The trials of continuations drawn from the target's own p_beam."""
    return [
        Trial(d.beam.node, d.token, joint.beams[d.parent].node, fate, p=p_beam[d.parent * joint.size + d.token])
        for d, fate in zip(draws, fates, strict=True)
    ]


def commit_beams(
    request: Request,
    trials: list[Trial],
    drawn: list[Beam],
    live: list[Beam],
    ended: list[Beam],
    keep_one: bool = False,
) -> Round:
    """Commit a layer of beams. Those that end are added to `ended`, the others become `live`; both lists change in place.

    keep_one   keep only the best live beam
    The answer is the best of all beams, provisional until none is live or the budget is spent. Yield the result.
    """
    live[:] = []
    for beam in drawn:
        (ended if request.ends(beam.node) else live).append(beam)
    if keep_one and live:
        live[:] = [best(request, live)]
    answer = best(request, [*ended, *live]).node
    over = not live or request.tree.new_length(live[0].node) >= request.budget
    finished = (request.ends(answer) or "budget") if over else None
    return request.commit(trials, [b.node for b in live] or [answer], answer, finished, provisional=True)


def likeliest_path(
    request: Request, model: str, width: int | None, steps: int, sampled: bool
) -> Generator[Ask, list[Reading], list[NodeId]]:
    """The path after the tip with the highest raw joint likelihood that beams of a model find: MTAD's draft, or, with the target as
    the model, a block of MTJD.

    width     draws per step of beam sampling, or beams kept by beam search; None keeps them all
    sampled   beam sampling rather than beam search
    A beam that ends keeps its score and competes with the others.
    """
    live = [Beam(request.tip, 0.0)]
    ended: list[Beam] = []
    for _ in range(steps):
        ask = request.ask(model, [b.node for b in live], 0 if sampled else width or 0)
        joint = Joint(live, (yield ask))
        if sampled:
            assert width is not None  # only a search keeps all
            draws = draw_beams(request, joint, joint.warp(request.warping), width)
        else:
            draws = [joint.draw(request, *found) for found in joint.top(width)]
        ended += [d.beam for d in draws if d.token in request.end_tokens]
        live = [d.beam for d in draws if d.token not in request.end_tokens]
        if not live:
            break
    winner = max([*ended, *live], key=lambda b: b.score)
    return request.tree.lineage(winner.node, request.tree.depths[request.tip] + 1)
