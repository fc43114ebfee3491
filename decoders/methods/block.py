"""Block verification, and traversal verification, which is the same on trees.

A draft is judged as a whole, from its leaves to its root. This keeps more of it than judging token
by token, and never less.

Source:
    Sun et al. 2024, block verification (arXiv 2403.10444); Weng et al. 2025, traversal verification
    (arXiv 2505.12398).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from decoders.distribution import Distribution, minimum, point_mass, residual
from decoders.methods.rules import Rule, Verdict, accepted, sides
from decoders.methods.sources import CHAINS, DRAWN, Draft
from decoders.reading import Reading
from decoders.request import Request
from decoders.shapes import NodeId
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
