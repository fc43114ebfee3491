"""Beams and the steps of beam sampling and beam search on them.

Beams are a multiset of tree nodes with raw joint log-likelihoods. Draft and target beams are the
same thing; the caller decides which model scores them.
"""

import math
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch

from decoders.distribution import UNDER_ONE, Distribution, Warping, Whole, small, top, warp
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.shapes import NodeId, Probs, TokenId
from decoders.trace import Fate, Round, Trial


class Beam(NamedTuple):
    """A node, and the raw joint log-likelihood (nats) of the tokens from the beams' start to it."""

    node: NodeId
    score: float


class BeamDraw(NamedTuple):
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
        value = self.value(index) if value is None else value
        return BeamDraw(parent, token, Beam(node, self.origin + value))

    def warp(self, warping: Warping) -> Distribution:
        """p_beam or q_beam: the warping, applied once to the flattened joint."""
        if warping.temperature and not warping.cuts:
            return UncutJoint(self, warping)
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
        scores = rows.new_tensor([b.score - self.origin for b in self.beams])
        return rows.log_softmax(-1) + scores[:, None]

    def _add(self, log_p: float, score: float) -> float:
        return float(np.float32(log_p) + np.float32(score)) if self.rounded else log_p + score

    def _likeliest(self, count: int | None, fetch: bool = False) -> tuple[list[int], list[float]]:
        """Indices and values of the likeliest continuations, from the beams' likeliest tokens.

        `count` (None: all known) is the number needed; `fetch` reads more logits to reach it.
        """
        lists = [r.likeliest(count if fetch else None) for r in self.readings]
        most = min(self.size if count is None else count, *(len(ids) for ids, _ in lists))
        scores = [b.score - self.origin for b in self.beams]
        parts = [(r.log_sum, score) for r, score in zip(self.readings, scores, strict=True)]
        # Nothing less likely than the last of `count` tokens is among the likeliest of all; tokens
        # that were not read may be as likely as the last of those that were.
        last, equals = -math.inf, True
        if 0 < most < self.size:
            ends = zip(lists, parts, strict=True)
            last = max(self._add(x[most - 1] - log_sum, score) for (_, x), (log_sum, score) in ends)
            equals = most == count or last == -math.inf
        likeliest: list[tuple[float, int]] = []
        for number, ((ids, logits), (log_sum, score)) in enumerate(zip(lists, parts, strict=True)):
            first = number * self.size
            for token, logit in zip(ids[:most], logits, strict=False):
                value = self._add(logit - log_sum, score)
                if value < last or (value == last and not equals):
                    break
                likeliest.append((-value, first + token))
        likeliest.sort()
        return [index for _, index in likeliest], [-value for value, _ in likeliest]

    def _excess(self, highest: float, temperature: float) -> float:
        """The log of the sum, over all continuations, of exp((value - highest) / temperature)."""
        parts = self.log_masses(highest, temperature)
        most = max(parts)
        return most + math.log(sum(math.exp(x - most) for x in parts))

    def log_masses(self, highest: float, temperature: float) -> list[float]:
        """That of each beam alone."""
        return [
            r.excess(temperature) + (value - highest) / temperature
            for r, value in zip(self.readings, self.peaks, strict=True)
        ]

    @property
    def peaks(self) -> list[float]:
        """The largest value of each beam."""
        return [
            r.peak - r.log_sum + b.score - self.origin
            for b, r in zip(self.beams, self.readings, strict=True)
        ]


class UncutJoint(Whole):
    """The distribution over the continuations of beams where warping leaves all of them.

    A beam is drawn first, then one of its tokens, with one number for both: masses are added up by
    rising index, and those of a beam follow each other.

    Args:
        joint: the beams
        warping: a temperature alone
    """

    __slots__ = ("_below", "_highest", "_joint", "_temperature", "_warping")

    def __init__(self, joint: Joint, warping: Warping):
        temperature, peaks = max(warping.temperature, sys.float_info.min), joint.peaks
        highest = max(peaks)
        below = [0.0, *accumulate(map(math.exp, joint.log_masses(highest, temperature)))]

        def masses() -> Probs:
            rows = torch.stack([r.row for r in joint.readings])
            heat = max(temperature, torch.finfo(rows.dtype).tiny)
            shares = [math.exp((x - highest) / temperature) / below[-1] for x in peaks]
            each = rows.new_tensor([[r.peak for r in joint.readings], shares])
            rows.sub_(each[0, :, None])
            if heat != 1:
                rows.div_(heat)
            return rows.exp_().mul_(each[1, :, None]).flatten()

        super().__init__(masses)
        self._joint, self._warping = joint, warping
        self._temperature, self._highest, self._below = temperature, highest, below

    def __getitem__(self, index: int) -> float:
        over = self._joint.value(index) - self._highest
        return math.exp(over / self._temperature) / self._below[-1]

    def draw(self, uniforms: Sequence[float]) -> list[int]:
        below, goal = self._below, self._below[-1] * UNDER_ONE
        rests: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for place, u in enumerate(uniforms):
            beam = bisect_right(below, u * goal) - 1
            rest = (u * goal - below[beam]) / (below[beam + 1] - below[beam])
            rests[beam].append((place, rest))
        indices = [0] * len(uniforms)
        for beam, some in rests.items():
            row = self._joint.readings[beam].warp(self._warping)
            tokens = row.draw([rest for _, rest in some])
            for (place, _), token in zip(some, tokens, strict=True):
                indices[place] = beam * self._joint.size + token
        return indices

    def regrouped(self, rows: Mapping[int, int], size: int) -> Whole:
        joint, order = self._joint, sorted(rows, key=rows.__getitem__)
        if order == list(range(len(joint.beams))):
            return self
        beams, readings = [joint.beams[i] for i in order], [joint.readings[i] for i in order]
        return UncutJoint(Joint(beams, readings, joint.origin), self._warping)


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
