"""The two parts of a decoder that drafts and verifies: a source of drafts, and a rule.

Any two that fit make a decoder; see `decoders.methods.combination`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from decoders.drafts import Draft, Predict
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import Checked, Decoding, Law
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial, Trials

Propose = Callable[[Request], Generator[Ask, Any, Draft]]
Verdict = tuple[Trials | list[Trial], NodeId]  # every trial, and the new tip


class Kind(StrEnum):
    """What a source drafts, as far as rules differ by it."""

    CERTAIN = "a chain of tokens without probabilities"
    CHAIN = "a drawn chain"
    HEADED = "a chain drawn by a head"
    EITHER = "a chain of tokens without probabilities, or one drawn by a head"
    COUNTED = "a chain drawn from counts"
    PATHS = "several chains, drawn independently"
    TREE = "a tree of independent draws"
    DISTINCT = "a tree of draws without replacement"
    CHOSEN = "a tree of chosen tokens"


CHAINS = frozenset({Kind.CERTAIN, Kind.CHAIN, Kind.HEADED, Kind.EITHER, Kind.COUNTED})
DRAWN = frozenset({Kind.CHAIN, Kind.HEADED, Kind.COUNTED, Kind.PATHS, Kind.TREE, Kind.DISTINCT})


class Drafting(NamedTuple):
    """A source at work for one request.

    Attributes:
        propose: returns the draft of a round
        predict: the distributions that it draws from; None if it draws nothing
        learn: is given the readings of the target at the nodes of each draft
        likeliest: how many of the likeliest tokens it looks at in those
        pause: how many more empty drafts follow an empty one; None if nobody knows
    """

    propose: Propose
    predict: Predict | None = None
    learn: Callable[[Draft, Sequence[Reading]], None] | None = None
    likeliest: int = 0
    pause: Callable[[], int] | None = None


class Source(Checked, ABC):
    """Where drafts come from: a frozen dataclass of settings.

    Attributes:
        kind: what it drafts
        uses_draft: whether it needs a draft model
        uses_head: whether it needs a head of the target
        size: most draft tokens of a round, if they branch; 0 for a chain
        longest: most draft tokens on a path; infinite where nobody knows
    """

    kind: ClassVar[Kind]
    uses_draft: ClassVar[bool] = False
    uses_head: ClassVar[bool] = False

    @property
    def drafter(self) -> str:
        """The model that drafts, if one does."""
        return "head" if self.uses_head else "draft"

    @property
    def size(self) -> int:
        return 0

    @property
    def longest(self) -> float:
        return math.inf

    @abstractmethod
    def start(self, request: Request) -> Drafting:
        """Begin to draft for a request."""


class Rule(Checked, ABC):
    """How the target's distributions judge a draft: a frozen dataclass of settings.

    Attributes:
        law: the law of the output
        judges: the drafts for which it has that law
        lawless: drafts that it judges too, and then the output has no known law
        window: it does nothing of its own in drafts of at most this length
        beyond: whether it needs q after the last draft token too, for the bonus token
        backwards: whether it tests the last draft token first
    """

    law: ClassVar[Law | None] = Law.TARGET
    window: int = 0
    judges: ClassVar[frozenset[Kind]]
    lawless: ClassVar[frozenset[Kind]] = frozenset()
    beyond: ClassVar[bool] = False
    backwards: ClassVar[bool] = False

    @classmethod
    def fits(cls, source: "Source | type[Source]") -> bool:
        """Whether it judges the drafts of a source."""
        return source.kind in cls.judges | cls.lawless

    @abstractmethod
    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        """Judge the draft of a round.

        Args:
            request: the request being decoded
            draft: the draft
            readings: the target's readings at `draft.nodes`

        Returns:
            Every trial, and the new tip.
        """


Parts = tuple[Source, Rule]


def sample(request: Request, most: int) -> Decoding:
    """Rounds without a draft: at most so many tokens of the target, those of one of its calls."""
    for d in (yield request.draw("target", request.tip, most, piecemeal=True)):
        trial = Trial(d.node, d.token, d.parent, Fate.SAMPLED, p=d.q[d.token])
        yield request.advance([trial], d.node)
        if request.finished:
            return


def speculate(request: Request, drafting: Drafting, rule: Rule) -> Decoding:
    """Draft, verify, correct, for any source and any rule.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    propose, predict, learn, likeliest, pause = drafting
    while not request.finished:
        draft = yield from propose(request)
        if pause and not draft.draws and rule.law is Law.TARGET:
            yield from sample(request, min(1 + pause(), request.left))
            continue
        if rule.beyond and predict:
            (last,) = draft.nodes[-1:]
            draft.q.update(zip([last], (yield from predict(request, [last])), strict=True))
        readings = yield request.ask("target", draft.nodes, likeliest)
        if learn:
            learn(draft, readings)
        yield request.advance(*rule.judge(request, draft, readings))
