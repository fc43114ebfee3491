"""Beams and the steps of beam sampling and beam search on them.

Beams are a multiset of tree nodes with raw joint log-likelihoods. Draft and target beams are the
same thing; the caller decides which model scores them.
"""

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.distribution import Distribution, Warping, Whole, small, top, warp
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Round, Trial


@dataclass(frozen=True, slots=True)
class Beam:
    """A node, and the raw joint log-likelihood (nats) of the tokens from the beams' start to it."""

    node: NodeId
    score: float


@dataclass(frozen=True, slots=True)
class BeamDraw:
    """A continuation of the beam with the index `parent`.

    It names the beam by index because equal beams share a node and one may live without the other.
    """

    parent: int
    token: TokenId
    beam: Beam


def highest(beams: Iterable[Beam]) -> float:
    """The highest score of these beams; 0 if all of them are impossible."""
    score = max(b.score for b in beams)
    return score if score > -math.inf else 0.0


class Joint:
    """The raw joint log-likelihoods of every continuation of W beams, before normalising.

    The continuation of beam b by a token has the index b * V + token, as in a flattened (W, V)
    tensor. `origin` is subtracted from all values: with the score of a long text included, float32
    would have no digits left to tell the continuations apart.

    Args:
        beams: the W beams
        readings: the readings of the beams' nodes, in the order of the beams
        origin: subtracted from every value, in nats; by default the beams' highest score
        rounded: compute in float32, as transformers' beam search does

    Source:
        Qin et al. 2024 (MTAD, arXiv 2407.09722), eq. 2, and (DSBD, arXiv 2409.16560), eq. 1.
    """

    def __init__(
        self,
        beams: Sequence[Beam],
        readings: Sequence[Reading],
        origin: float | None = None,
        rounded: bool = False,
    ):
        self.beams, self.readings, self.rounded = beams, readings, rounded
        self.origin = highest(beams) if origin is None else origin
        self.size = readings[0].size

    def value(self, index: int) -> float:
        beam, token = divmod(index, self.size)
        return self._add(self.readings[beam].log_p(token), self.beams[beam].score - self.origin)

    def draw(self, request: Request, index: int, value: float | None = None) -> BeamDraw:
        """The continuation at an index, as a node of the tree; `value` is its value, if known."""
        parent, token = divmod(index, self.size)
        node = request.tree.add(self.beams[parent].node, token)
        return BeamDraw(
            parent, token, Beam(node, self.origin + (self.value(index) if value is None else value))
        )

    def warp(self, warping: Warping) -> Distribution:
        """p_beam or q_beam: the warping, applied once to the flattened joint."""
        ids, values = self._likeliest(1 if warping.temperature == 0 else warping.top_k or None)
        few = small(
            ids, values, len(self.beams) * self.size, lambda t: self._excess(values[0], t), warping
        )
        return few or Whole(warp(self.whole().flatten(), warping))

    def top(self, count: int | None) -> list[tuple[int, float]]:
        """Indices and values of the `count` largest (or all), falling; equals by rising index."""
        if count is not None:
            ids, largest = self._likeliest(count, fetch=True)
            return list(zip(ids[:count], largest, strict=False))
        values, indices = top(self.whole().flatten(), len(self.beams) * self.size)
        return list(zip(indices.tolist(), values.tolist(), strict=True))

    def whole(self) -> torch.Tensor:
        """All values (W, V), on the model's device."""
        rows = torch.stack([r.row for r in self.readings])
        scores = torch.tensor(
            [b.score - self.origin for b in self.beams], dtype=rows.dtype, device=rows.device
        )
        return rows.log_softmax(-1) + scores[:, None]

    def _add(self, log_p: float, score: float) -> float:
        return float(np.float32(log_p) + np.float32(score)) if self.rounded else log_p + score

    def _likeliest(self, count: int | None, fetch: bool = False) -> tuple[list[int], list[float]]:
        """Indices and values of the likeliest continuations, from the beams' likeliest tokens.

        `count` (None: all known) is the number needed; `fetch` reads more logits to reach it.
        """
        lists = [r.likeliest(count if fetch else None) for r in self.readings]
        most = min(self.size if count is None else count, *(len(ids) for ids, _ in lists))
        values = np.array([logits[:most] for _, logits in lists])
        values -= np.array([[r.log_sum] for r in self.readings])
        scores = np.array([[b.score - self.origin] for b in self.beams])
        if self.rounded:
            values = (values.astype(np.float32) + scores.astype(np.float32)).astype(np.float64)
        else:
            values += scores
        indices = np.array([ids[:most] for ids, _ in lists], dtype=np.int64)
        indices += np.arange(0, len(lists) * self.size, self.size)[:, None]
        last = values[:, -1].max() if most else math.inf
        stay: Any = slice(None)
        # Nothing less likely than the last of `count` tokens is among the likeliest of all; tokens
        # that were not read may be as likely as the last of those that were.
        if most < self.size:
            stay = values >= last if most == count or last == -math.inf else values > last
        values, indices = values[stay].ravel(), indices[stay].ravel()
        order = np.lexsort((indices, -values))
        return indices[order].tolist(), values[order].tolist()

    def _excess(self, highest: float, temperature: float) -> float:
        """The log of the sum, over all continuations, of exp((value - highest) / temperature)."""
        parts = [
            r.excess(temperature)
            + (r.likeliest(1)[1][0] - r.log_sum + b.score - self.origin - highest) / temperature
            for b, r in zip(self.beams, self.readings, strict=True)
        ]
        most = max(parts)
        return most + math.log(sum(math.exp(x - most) for x in parts))


def draw_beams(request: Request, joint: Joint, probs: Distribution, count: int) -> list[BeamDraw]:
    """`count` continuations, drawn i.i.d. with replacement from `probs`."""
    indices = request.source.draw(probs, count)
    draws = {index: joint.draw(request, index) for index in dict.fromkeys(indices)}
    return [draws[index] for index in indices]


def best(request: Request, beams: Sequence[Beam]) -> Beam:
    """The beam with the lowest perplexity, exp(-score / length); of equals the earliest."""
    return max(beams, key=lambda b: b.score / request.tree.new_length(b.node))


def drawn_trials(
    joint: Joint, draws: Sequence[BeamDraw], p_beam: Distribution, fates: Sequence[Fate]
) -> list[Trial]:
    """The trials of continuations that were drawn from the target's own p_beam."""
    return [
        Trial(
            d.beam.node,
            d.token,
            joint.beams[d.parent].node,
            fate,
            p=p_beam[d.parent * joint.size + d.token],
        )
        for d, fate in zip(draws, fates, strict=True)
    ]


def commit_beams(
    request: Request,
    trials: list[Trial],
    children: list[Beam],
    live: list[Beam],
    ended: list[Beam],
    keep_one: bool = False,
) -> Round:
    """Commit a layer of beams and return the round, for the decoder to yield.

    The answer is the best of all beams, provisional until none is live or the budget is spent.

    Args:
        request: the request being decoded
        trials: everything that was tried in this round
        children: the beams of the new layer
        live: set in place to the drawn beams that continue
        ended: extended in place by the drawn beams that end
        keep_one: keep only the best live beam
    """
    live[:] = []
    for beam in children:
        (ended if request.ends(beam.node) else live).append(beam)
    if keep_one and live:
        live[:] = [best(request, live)]
    answer = best(request, [*ended, *live]).node
    over = not live or request.tree.new_length(live[0].node) >= request.budget
    finished = (request.ends(answer) or "budget") if over else None
    return request.commit(
        trials, [b.node for b in live] or [answer], answer, finished, provisional=True
    )


def likeliest_path(
    request: Request, model: str, width: int | None, steps: int, sampled: bool
) -> Generator[Ask, list[Reading], list[NodeId]]:
    """The nodes after the tip with the highest raw joint likelihood that a model's beams find.

    This is MTAD's draft or, with the target as the model, a block of MTJD. A beam that ends keeps
    its score and competes with the others.

    Args:
        request: the request being decoded
        model: "target" or "draft"
        width: draws per step of beam sampling, or beams kept by beam search; None keeps all
        steps: most tokens of the path
        sampled: beam sampling rather than beam search
    """
    live = [Beam(request.tip, 0.0)]
    ended: list[Beam] = []
    for _ in range(steps):
        nodes = [b.node for b in live]
        joint = Joint(live, (yield request.ask(model, nodes, 0 if sampled else width or 0)))
        if sampled:
            assert width is not None  # only a search keeps all
            draws = draw_beams(request, joint, joint.warp(request.warping), width)
        else:
            draws = [joint.draw(request, *entry) for entry in joint.top(width)]
        ended += [d.beam for d in draws if d.token in request.end_tokens]
        live = [d.beam for d in draws if d.token not in request.end_tokens]
        if not live:
            break
    winner = max([*ended, *live], key=lambda b: b.score)
    return request.tree.lineage(winner.node, request.tree.depths[request.tip] + 1)
