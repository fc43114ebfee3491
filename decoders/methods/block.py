"""Block verification: of chains, of trees (traversal), and of the best of several paths.

A draft is judged as a whole, from its leaves to its root. This keeps more of it than judging token
by token, and never less.

Source:
    Sun et al. 2024, block verification (arXiv 2403.10444); Weng et al. 2025, traversal verification
    (arXiv 2505.12398); Thomas and Pal 2026, greedy multi-path block verification (arXiv
    2602.16961), whose weights are derived here and proven by enumeration.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Whole, minimum, point_mass, residual
from decoders.methods.rules import Rule, Verdict, accepted, sides
from decoders.methods.sources import CHAINS, DRAWN, Draft, Kind
from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Trial


@dataclass(frozen=True)
class Block(Rule):
    name = "block"
    judges = CHAINS
    backwards = True

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        trials = [Trial(d.node, d.token, d.parent, Fate.DISCARDED) for d in draft.draws]
        below = defaultdict(list)
        for trial in trials:
            below[trial.parent].append(trial)
        known = dict(zip(draft.nodes, readings, strict=True))
        end = _Descent(request, draft, known, below).end(draft.root)
        assert end  # the root is kept
        after, fate, rest = end
        fate = fate if draft.draws else Fate.SAMPLED
        sampled, tip = request.sample(after, fate, rest, request.warp(known[after]))
        return [*trials, *sampled], tip

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        count = accepted(trials)
        last = trials[max(count, 1) - 1]
        u, a = sides(last.u or 0.0, last.accept_probability or 0.0)
        if not count:
            return (
                "Judged as a whole, no beginning passes: the last one tried, the first token "
                f"alone, passes with chance {a}, and its random number {u} is not below that."
            )
        whole = count == len(trials)
        what = "the whole draft" if whole else f"the part up to {names[count - 1]}"
        return (
            f"Judged as a whole, {what} passes with chance {a}, and its random number {u} is "
            "below that."
        )


class _Descent(NamedTuple):
    """The way down a draft that is being judged, and back.

    Attributes:
        known: the target's readings, by node; most of a tree are never looked at
        below: the trials of each node's children that are not judged yet
    """

    request: Request
    draft: Draft
    known: Mapping[NodeId, Reading]
    below: dict[NodeId, list[Trial]]

    def end(
        self, node: NodeId, a: float = 1.0, own: Trial | None = None
    ) -> tuple[NodeId, Fate, Distribution] | None:
        """Where the kept path ends, at a node or below, and what is left of p there.

        None if the node is refused. `a`, the paper's acceptance rate, is how likely the target
        finds the path to it, compared with the draft; at most 1. Each child is tried with what
        those before it left of p and a; the root, which has no trial of its own, is never refused.
        """
        # Equal draws are tried as often as they were drawn; the first has all the children.
        p, q = self.request.warp(self.known[node]), self.draft.q.get(node)
        children = self.below.pop(node, [])
        for child in children:
            q = q or point_mass(child.token)
            child.p, child.q = p[child.token], q[child.token]
            end = self.end(child.node, min(1.0, a * (child.p / child.q)), child)
            child.fate = Fate.ACCEPTED if end else Fate.REJECTED
            if end:
                return end
            left = max(0.0, a - minimum(a * p, q).total)  # the sum of max(0, a p - q)
            p = residual(a * p, q)
            if own:
                a = left / (left + 1 - a) if left else 0.0
            if self.draft.distinct:
                q = q.without(child.token)
        if own:
            own.accept_probability = a
            accepted, own.u = self.request.source.accept(a)
            if not accepted:
                for child in children:
                    child.fate = Fate.DISCARDED
                return None
        return node, Fate.CORRECTED if children else Fate.BONUS, p


@dataclass(frozen=True)
class Traversal(Block):
    name = "traversal"
    judges = DRAWN | CHAINS


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
