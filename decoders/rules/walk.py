"""Walking a draft: at each node a rule tests the children drawn there, and the walk continues below the one that it keeps."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from decoders.distribution import Distribution
from decoders.drafts.draft import Draft
from decoders.reading import Reading
from decoders.request import Request
from decoders.sampling import RandomSource
from decoders.shapes import NodeId, TokenId
from decoders.trace import Fate, Trial


@dataclass(slots=True)
class Pick:
    """What a rule did at one node.

    tests   (p, q, accept probability, u) of each child that it tested, in the order drawn
    kept    whether it kept the last one tested
    rest    if not, the distribution that the target's token is drawn from instead
    """

    tests: list[tuple[float, float | None, float | None, float | None]] = field(default_factory=list)
    kept: bool = False
    rest: Distribution | None = None


class Rule(Protocol):
    def pick(
        self, p: Distribution, q: Distribution | None, tokens: list[TokenId], reading: Reading, source: RandomSource
    ) -> Pick:
        """Judge the children `tokens` of one node, in the order drawn.

        p, reading   the target's warped distribution of the next token there, and its raw numbers
        q            the distribution that the children were drawn from, or None for a certain child
        """


def walk(request: Request, draft: Draft, readings: Sequence[Reading], rule: Rule) -> tuple[list[Trial], NodeId]:
    """Judge a draft, given the target's readings at `draft.nodes`. Returns every trial and the new tip."""
    known = dict(zip(draft.nodes, readings, strict=True))
    children = defaultdict(list)
    for draw in draft.draws:
        children[draw.parent].append(draw)
    trials: list[Trial] = []
    node = draft.root
    while draws := children.pop(node, None):
        reading = known[node]
        p = request.warp(reading)
        pick = rule.pick(p, draft.q.get(node), [d.token for d in draws], reading, request.source)
        for i, draw in enumerate(draws):
            fate = Fate.DISCARDED
            test = pick.tests[i] if i < len(pick.tests) else (None,) * 4
            if i < len(pick.tests):
                fate = Fate.ACCEPTED if pick.kept and i == len(pick.tests) - 1 else Fate.REJECTED
            trials.append(Trial(draw.node, draw.token, draw.parent, fate, *test))
        if not pick.kept:
            assert pick.rest is not None  # a rule that refuses says what is left
            after, fate, probs = node, Fate.CORRECTED, pick.rest
            break
        node = draws[len(pick.tests) - 1].node
    else:
        p = probs = request.warp(known[node])
        after, fate = node, Fate.BONUS if draft.draws else Fate.SAMPLED
    trials += [Trial(d.node, d.token, d.parent, Fate.DISCARDED) for rest in children.values() for d in rest]
    if fate == Fate.BONUS and request.tree.tokens[after] in request.end_tokens:
        return trials, after  # nothing follows the end of the text
    token = request.source.draw(probs)[0]
    tip = request.tree.add(after, token)
    trials.append(Trial(tip, token, after, fate, p=p[token]))
    return trials, tip
