"""Greedy multi-path block verification: the best of several paths, judged as a whole.

Source:
    Thomas and Pal 2026, greedy multi-path block verification (arXiv 2602.16961). The weights are
    derived here; enumeration proves them.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Whole, point_mass
from decoders.methods.block import Block
from decoders.methods.rules import Verdict
from decoders.methods.sources import CHAINS, Draft, Kind
from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import TokenId
from decoders.trace import Fate, Trial


@dataclass(frozen=True)
class MultiPath(Block):
    """Block verification of the path that is last if tokens are ordered by p / q.

    Of K paths i.i.d. from q, the last one begins with a prefix with probability (S + m)^K - S^K:
    S is the q-mass of the prefixes ordered below, m the prefix's own. So its next token has
    another distribution, q', which block verification takes in place of q.
    """

    name = "multipath"
    judges = CHAINS | {Kind.PATHS}

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        known = dict(zip(draft.nodes, readings, strict=True))
        children = defaultdict(list)
        for draw in draft.draws:
            children[draw.parent].append(draw)
        drafts, best = len(children[draft.root]), Draft(draft.root)
        below, own, node = 0.0, 1.0, draft.root  # S and m, divided by S + m
        while draws := children.pop(node, None):
            q = draft.q.get(node) or point_mass(draws[0].token)
            order = Order(request.warp(known[node]), q)
            draw = max(draws, key=lambda d: order.place[d.token])
            best.draws.append(draw)
            best.q[node] = order.reweighted(drafts, below, own)
            lower, mass = order.at(draw.token)
            top = below + own * (lower + mass)
            below, own, node = (below + own * lower) / top, own * mass / top, draw.node
        trials, tip = super().judge(request, best, [known[node] for node in best.nodes])
        assert isinstance(trials, list)
        chosen = {id(draw) for draw in best.draws}
        others = [
            Trial(d.node, d.token, d.parent, Fate.DISCARDED)
            for d in draft.draws
            if id(d) not in chosen
        ]
        return [*trials[: len(best.draws)], *others, *trials[len(best.draws) :]], tip


class Order:
    """The tokens of q by rising p / q; of equals, the lower id first.

    Attributes:
        place: from each token to its place
    """

    def __init__(self, p: Distribution, q: Distribution):
        self.q = q
        # Numpy, because most distributions have a few tokens, and its calls take less than torch's.
        if isinstance(q, Whole):
            mass = q.mass.to("cpu").numpy()
            ids = mass.nonzero()[0]
            masses = mass[ids].astype(np.float64)
        else:
            ids, masses = np.array(list(q.mass)), np.array(list(q.mass.values()))
        if isinstance(p, Whole):
            target = p.mass.to("cpu").numpy()[ids].astype(np.float64)
        else:
            target = np.array([p[x] for x in ids.tolist()])
        order = (target / masses).argsort(kind="stable")
        self.ids, self.masses = ids[order], masses[order]
        self.lower = self.masses.cumsum() - self.masses  # q of the tokens before
        self.place: dict[TokenId, int] = {x: i for i, x in enumerate(self.ids.tolist())}

    def at(self, token: TokenId) -> tuple[float, float]:
        """The q of all tokens before this one, and its own."""
        place = self.place[token]
        return float(self.lower[place]), float(self.masses[place])

    def reweighted(self, drafts: int, below: float, own: float) -> Distribution:
        """q' of the children of a prefix with S and m = `below` and `own`."""
        bottom = below + own * self.lower
        whole = powers(drafts, below + own, below)
        masses = self.masses * powers(drafts, bottom + own * self.masses, bottom) / whole
        if isinstance(self.q, Whole):
            mass = np.zeros(len(self.q.mass))
            mass[self.ids] = masses
            return Whole(torch.from_numpy(mass / mass.sum()).to(self.q.mass))
        small = dict(sorted(zip(self.ids.tolist(), masses.tolist(), strict=True)))
        return Small(small) / sum(small.values())


def powers(drafts: int, a: Any, b: Any) -> Any:
    """(a^K - b^K) / (a - b) for numbers or arrays of them, K the number of drafts.

    It is the sum of a^j b^(K-1-j), which is exact where a and b are close.
    """
    total, power = 0.0, 1.0
    for _ in range(drafts):
        total, power = total * b + power, power * a
    return total
