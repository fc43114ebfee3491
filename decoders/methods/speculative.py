"""Speculative decoding's two parts: the draft model's chain, judged token by token.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from decoders.distribution import Distribution
from decoders.drafts import Draft, Draw, chain, said
from decoders.methods.budget import LONGEST, AutoLength
from decoders.methods.parts import CHAINS, Drafting, Kind, Rule, Source, Verdict
from decoders.reading import Reading
from decoders.request import Doubt, Request
from decoders.rules import Node, NodeRule, SpeculativeRule
from decoders.settings import Law, claim, setting
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial, Trials

# The children of a node, their tests, and whether the last one tested was kept.
Judged = tuple[list[Draw], list[tuple], bool]

DRAFT_LENGTH = setting(4, "draft tokens per round (gamma)", low=1, high=64)
AUTO_LENGTH = setting(
    4,
    "draft tokens per round; 'auto' takes what is quickest by the clock for all prompts together, "
    "perhaps none: the law stays, but not a seed's tokens",
    low=1,
    high=64,
    choices=("auto",),
)
ETA = 0.2  # of the bound on acceptance, as the authors have it
GATE = setting(
    0.0,
    f"stop drafting when 1 - sqrt({ETA} H) is below this, H being the entropy (nats) of the draft "
    "model's next token; 0 never stops",
    low=0.0,
    high=1.0,
)
LENIENCE = setting(
    1.0,
    "below 1, drafts are accepted more readily and the output is no longer exact",
    low=0.01,
    high=1.0,
)


@dataclass(frozen=True)
class Tokenwise(Rule):
    """Speculative sampling, token by token; with a lenience below 1 it has no law."""

    name = "tokenwise"
    judges = CHAINS

    lenience: float = LENIENCE

    @claim
    def law(self) -> Law | None:
        return Law.TARGET if self.lenience == 1 else None

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        rule = SpeculativeRule(self.lenience, greedy=request.warping.temperature == 0)
        return walk(request, draft, readings, rule)


@dataclass(frozen=True)
class Chain(Source):
    """Tokens of the draft model, each drawn after the one before."""

    name = "model"
    kind = Kind.CHAIN
    uses_draft = True

    draft_length: int | str = AUTO_LENGTH
    confidence: float = setting(
        0.0,
        "stop drafting when the draft model's largest probability is below this; 0 never stops",
        low=0.0,
        high=2.0,
    )
    gate: float = GATE

    @property
    def longest(self) -> int:
        return LONGEST if isinstance(self.draft_length, str) else self.draft_length

    def start(self, request: Request) -> Drafting:
        fixed, predict = self.draft_length, partial(said, model=self.drafter)
        until = self.doubt if self.confidence or self.gate else None
        if not isinstance(fixed, str):
            return Drafting(lambda r: chain(r, fixed, until, self.drafter), predict)
        auto = AutoLength(request)
        return Drafting(
            lambda r: chain(r, auto(), until, self.drafter),
            predict,
            pause=lambda: auto.left,
        )

    @property
    def doubt(self) -> Doubt:
        """When a draft ends early, at temperature 0 too.

        Source:
            Agrawal et al. 2024 (AdaEDL, arXiv 2410.18351): the gate, solved for the entropy.
        """
        return Doubt(self.confidence, (1 - self.gate) ** 2 / ETA if self.gate else math.inf)


@dataclass(frozen=True)
class Headed(Chain):
    """Tokens of a head, which reads the target's hidden states.

    Source:
        Li et al. 2025 (EAGLE-3, arXiv 2503.01840).
    """

    name = "head"
    kind = Kind.HEADED
    uses_draft = False
    uses_head = True


def walk(
    request: Request,
    draft: Draft,
    readings: Sequence[Reading],
    rule: NodeRule,
    mixed: Callable[[Distribution, Distribution], Distribution] | None = None,
) -> tuple[Trials, NodeId]:
    """Judge a draft: at each node, go on below the child that the rule keeps.

    Args:
        request: the request being decoded
        draft: the draft
        readings: the target's readings at `draft.nodes`
        rule: judges the children of each node
        mixed: what is sampled in place of p, from p and q

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
        p, q = request.warp(reading), draft.q.get(node)
        p = mixed(p, q) if mixed and q else p
        pick = rule.pick(Node(p, q, [d.token for d in draws], reading), request.source)
        judged.append((draws, pick.tests, pick.kept))
        if not pick.kept:
            assert pick.rest is not None  # a rule that refuses says what is left
            after, fate, probs = node, Fate.CORRECTED, pick.rest
            break
        draw = draws[len(pick.tests) - 1]
        kept.append(Trial(draw.node, draw.token, draw.parent, Fate.ACCEPTED, *pick.tests[-1]))
        node = draw.node
    else:
        p, q = request.warp(known[node]), draft.q.get(node)
        p = probs = mixed(p, q) if mixed and q else p
        after, fate = node, Fate.BONUS if draft.draws else Fate.SAMPLED
    tested = sum(len(tests) for _, tests, _ in judged)
    untested = [draw for rest in children.values() for draw in rest]
    trials = Trials(
        kept, len(draft.draws), tested, len(kept), lambda: in_order(judged, untested, kept)
    )
    own, tip = request.sample(after, fate, probs, p)
    kept += own
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
