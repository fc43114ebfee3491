"""Walking a draft: at each node a rule tests the children drawn there.

The walk continues below the child that the rule keeps.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from decoders.distribution import Distribution
from decoders.drafts.draft import Draft, Draw
from decoders.reading import Reading
from decoders.request import Request
from decoders.sampling import RandomSource
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Trial, Trials


@dataclass(slots=True)
class Pick:
    """The outcome of a rule at one node.

    Attributes:
        tests: (p, q, accept probability, u) of each child that it tested, in the order drawn
        kept: whether it kept the last one tested
        rest: if not, the distribution that the target's token is drawn from instead
    """

    tests: list[tuple[float, float | None, float | None, float | None]] = field(
        default_factory=list
    )
    kept: bool = False
    rest: Distribution | None = None


# The children of a node, their tests, and whether the last one tested was kept.
Judged = tuple[list[Draw], list[tuple], bool]


class Rule(Protocol):
    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        """Judge the children of one node.

        Args:
            p: the target's warped distribution of the next token there
            q: the distribution that the children were drawn from; None for a certain child
            tokens: the children, in the order drawn
            reading: the target's raw numbers there
            source: the randomness
        """


def walk(
    request: Request, draft: Draft, readings: Sequence[Reading], rule: Rule
) -> tuple[Trials, NodeId]:
    """Judge a draft.

    Args:
        request: the request being decoded
        draft: the draft
        readings: the target's readings at `draft.nodes`
        rule: judges the children of each node

    Returns:
        Every trial, and the new tip.
    """
    known = dict(zip(draft.nodes, readings, strict=True))
    children = defaultdict(list)
    for draw in draft.draws:
        children[draw.parent].append(draw)
    kept: list[Trial] = []
    judged: list[Judged] = []
    node = draft.root
    while draws := children.pop(node, None):
        reading = known[node]
        p = request.warp(reading)
        pick = rule.pick(p, draft.q.get(node), [d.token for d in draws], reading, request.source)
        judged.append((draws, pick.tests, pick.kept))
        if not pick.kept:
            assert pick.rest is not None  # a rule that refuses says what is left
            after, fate, probs = node, Fate.CORRECTED, pick.rest
            break
        draw = draws[len(pick.tests) - 1]
        kept.append(Trial(draw.node, draw.token, draw.parent, Fate.ACCEPTED, *pick.tests[-1]))
        node = draw.node
    else:
        p = probs = request.warp(known[node])
        after, fate = node, Fate.BONUS if draft.draws else Fate.SAMPLED
    tested = sum(len(tests) for _, tests, _ in judged)
    untested = [draw for rest in children.values() for draw in rest]
    trials = Trials(
        kept, len(draft.draws), tested, len(kept), lambda: in_order(judged, untested, kept)
    )
    if fate == Fate.BONUS and request.tree.tokens[after] in request.end_tokens:
        return trials, after  # nothing follows the end of the text
    token = request.source.draw(probs)[0]
    tip = request.tree.add(after, token)
    kept.append(Trial(tip, token, after, fate, p=p[token]))
    return trials, tip


def in_order(
    judged: Sequence[Judged], untested: Sequence[Draw], kept: Sequence[Trial]
) -> list[Trial]:
    """A walk's trials: the children of each visited node, all others, the target's own token."""
    trials, ours = [], iter(kept)
    for draws, tests, passed in judged:
        for i, d in enumerate(draws):
            if passed and i == len(tests) - 1:
                trials.append(next(ours))
            elif i < len(tests):
                trials.append(Trial(d.node, d.token, d.parent, Fate.REJECTED, *tests[i]))
            else:
                trials.append(Trial(d.node, d.token, d.parent, Fate.DISCARDED))
    return [*trials, *(Trial(d.node, d.token, d.parent, Fate.DISCARDED) for d in untested), *ours]
