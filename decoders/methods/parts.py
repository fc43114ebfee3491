"""The two parts of a decoder that drafts and verifies: a source of drafts, and a rule.

Any two that fit make a decoder; see `decoders.methods.combination`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from decoders.asks import Ask, Guess
from decoders.drafts import Draft, Predict
from decoders.reading import Reading
from decoders.request import Request
from decoders.settings import Checked, Decoding, Law
from decoders.shapes import NodeId
from decoders.trace import Fate, Trial, Trials

Propose = Callable[[Request], Generator[Ask, Any, Draft]]
Verdict = tuple[Trials | list[Trial], NodeId]  # every trial, and the new tip


class Kind(StrEnum):
    """What a source drafts, as far as rules differ by it."""

    CERTAIN = "a chain of tokens without probabilities"
    CHAIN = "a drawn chain"
    COUNTED = "a chain drawn from counts"
    PATHS = "several chains, drawn independently"
    TREE = "a tree of independent draws"
    DISTINCT = "a tree of draws without replacement"
    CHOSEN = "a tree of chosen tokens"


CHAINS = frozenset({Kind.CERTAIN, Kind.CHAIN, Kind.COUNTED})
DRAWN = frozenset({Kind.CHAIN, Kind.COUNTED, Kind.PATHS, Kind.TREE, Kind.DISTINCT})


class Drafting(NamedTuple):
    """A source at work for one request.

    Attributes:
        propose: returns the draft of a round
        predict: the distributions that it draws from; None if it draws nothing
        learn: is given the readings of the target at the nodes of each draft
        likeliest: how many of the likeliest tokens it looks at in those
        pause: how many more empty drafts will probably follow an empty one; None if nobody knows
        rounds_left: after a draft, in how many more rounds the draft model will probably draw a
            chain of at most the same length; None if it draws no chains, or nobody knows
        steady: whether all these chains are equally long, but for the last ones of the budget
    """

    propose: Propose
    predict: Predict | None = None
    learn: Callable[[Draft, Sequence[Reading]], None] | None = None
    likeliest: int = 0
    pause: Callable[[], int] | None = None
    rounds_left: Callable[[], int] | None = None
    steady: bool = False


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
        judges: the drafts for which it is what it claims
        window: it does nothing of its own in drafts of at most this length
        beyond: whether it needs q after the last draft token too, for the bonus token
        backwards: whether it tests the last draft token first
    """

    law: ClassVar[Law | None] = Law.TARGET
    window: int = 0
    judges: ClassVar[frozenset[Kind]]
    beyond: ClassVar[bool] = False
    backwards: ClassVar[bool] = False

    @property
    def guess(self) -> Guess | None:
        """How passes in advance guess what it keeps of a chain; None if they cannot.

        Such a rule takes at most one number for each token, and then one for the target's own. A
        subclass that judges in another way must say so here, too: where nothing is left to chance,
        rounds of token-wise judging are written down without `judge`.
        """
        return None

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
TOKENWISE = Guess("tokenwise")


def sample(request: Request, more: int, steady: bool = False) -> Decoding:
    """A round without a draft: one token of the target.

    Args:
        request: the request being decoded
        more: how many rounds of this kind will probably follow
        steady: whether no other kind follows
    """
    (d,) = yield request.draw("target", request.tip, 1, more=more, steady=steady)
    yield request.advance([Trial(d.node, d.token, d.parent, Fate.SAMPLED, p=d.q[d.token])], d.node)


def speculate(request: Request, drafting: Drafting, rule: Rule) -> Decoding:
    """Draft, verify, correct, for any source and any rule.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    propose, predict, learn, likeliest, pause, rounds_left, steady = drafting
    guess = rule.guess
    if not guess and not request.warping.temperature and rule.law is Law.TARGET:
        guess = TOKENWISE  # then all exact rules keep the same tokens
    steady = steady and rounds_left is not None and rule.guess == TOKENWISE
    while not request.finished:
        draft = yield from propose(request)
        if pause and not draft.draws and rule.law is Law.TARGET:
            yield from sample(request, min(pause(), request.left - 1))
            continue
        if rule.beyond and predict:
            (last,) = draft.nodes[-1:]
            draft.q.update(zip([last], (yield from predict(request, [last])), strict=True))
        left = rounds_left() if rounds_left and guess else 0
        readings = yield request.ask(
            "target", draft.nodes, likeliest, rounds_left=left, guess=guess, steady=steady
        )
        if learn:
            learn(draft, readings)
        yield request.advance(*rule.judge(request, draft, readings))
