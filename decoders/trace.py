"""What a decoder did, as plain data: rounds, and the fate of every token tried in them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from decoders.shapes import NodeId, TokenId


class Fate(StrEnum):
    ACCEPTED = "accepted"  # a draft token that was kept
    REJECTED = "rejected"  # a draft token that the rule tested and refused
    DISCARDED = "discarded"  # a draft token that the rule never tested
    CORRECTED = "corrected"  # the target's token in place of a refused draft token
    BONUS = "bonus"  # the target's token after a draft that was kept whole
    SAMPLED = "sampled"  # the target's token, with no draft involved
    SEARCHED = "searched"  # a token of a deterministic beam


KEPT = frozenset(Fate) - {Fate.REJECTED, Fate.DISCARDED}
DRAFTED = frozenset({Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED})


@dataclass(slots=True)
class Trial:
    """One token that was tried at one place of the tree. Several draws of the same node are several trials.

    p, q                    the probabilities that the rule compared (warped; over (beam, token) pairs for beam decoders), or None
    accept_probability, u   the chance of being accepted and the uniform number that decided, None if the rule uses no randomness
    log_p, alternatives, round   filled in for every kept token when its round is committed: the raw target log-probability (nats),
                            the five likeliest tokens with their raw target probabilities, the index of the round
    """

    node: NodeId
    token: TokenId
    parent: NodeId
    fate: Fate
    p: float | None = None
    q: float | None = None
    accept_probability: float | None = None
    u: float | None = None
    log_p: float | None = None
    alternatives: tuple[tuple[TokenId, float], ...] = ()
    round: int | None = None


class Trials:
    """The trials of a round, of which only those of kept tokens are made before somebody looks at them all.

    kept      those of kept tokens
    drafted, tested, accepted   how many of all are of draft tokens, of tested ones, of kept ones
    listed    makes the list of all, with the kept ones among them; it must not hold on to distributions, which are large
    """

    __slots__ = ("_list", "_listed", "accepted", "drafted", "kept", "tested")

    def __init__(self, kept: list[Trial], drafted: int, tested: int, accepted: int, listed: Callable[[], list[Trial]]):
        self.kept, self.drafted, self.tested, self.accepted = kept, drafted, tested, accepted
        self._listed: Callable[[], list[Trial]] | None = listed
        self._list: list[Trial] | None = None

    @classmethod
    def of(cls, trials: list[Trial]) -> "Trials":
        """Of a list that exists already."""
        fates = [t.fate for t in trials if t.fate in DRAFTED]
        counts = len(fates), len(fates) - fates.count(Fate.DISCARDED), fates.count(Fate.ACCEPTED)
        return cls([t for t in trials if t.fate in KEPT], *counts, lambda: trials)

    def __reduce__(self) -> tuple[Any, ...]:
        return Trials.of, (self.every(),)

    def every(self) -> list[Trial]:
        if self._list is None:
            assert self._listed is not None  # it goes when the list is there
            self._list, self._listed = self._listed(), None
        return self._list


@dataclass(slots=True)
class Round:
    """One cycle of a decoder: what it tried, what the answer is now, and what that took.

    tried           its trials, made when they are looked at; a list of them will do
    keep            how many tokens of the earlier answer still stand
    nodes, tokens   what follows them in the new answer: for a beam decoder the part of its best beam that differs from the last round's
    provisional     a later round may take this back
    draft_seconds, verify_seconds   wall time of this request, waiting for others in its passes included
    """

    index: int
    tried: Trials
    nodes: list[NodeId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    keep: int = 0
    provisional: bool = False
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    target_calls: int = 0
    draft_calls: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.tried, list):
            self.tried = Trials.of(self.tried)

    @property
    def trials(self) -> list[Trial]:
        return self.tried.every()

    @property
    def drafted(self) -> int:
        return self.tried.drafted

    @property
    def tested(self) -> int:
        return self.tried.tested

    @property
    def accepted(self) -> int:
        return self.tried.accepted
