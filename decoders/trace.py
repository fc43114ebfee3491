"""A decoder's actions and their cost: rounds, the fate of every token tried in them, passes."""

import math
from collections.abc import Callable, Sequence
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
    """One token that was tried at one place of the tree.

    Several draws of the same node are several trials.

    Attributes:
        node: the node of the token
        token: its id
        parent: the node before it
        fate: what became of it
        p: the target's probability that the rule compared, or None. It is warped; for beam
            decoders, over (beam, token) pairs.
        q: the draft model's probability that the rule compared, or None
        accept_probability: the chance of being accepted; None if the rule uses no randomness
        u: the uniform number that decided, or None
        log_p: raw log-probability under the target, in nats. This and the next two are filled in
            for every kept token when its round is committed.
        likeliest: the target's five likeliest tokens, their raw logits, and the log of the sum of
            all exp(logit)
        round: the index of its round
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
    likeliest: tuple[Sequence[TokenId], Sequence[float], float] = ((), (), 0.0)
    round: int | None = None

    @property
    def alternatives(self) -> tuple[tuple[TokenId, float], ...]:
        """The five likeliest tokens with their raw target probabilities."""
        ids, logits, log_sum = self.likeliest
        return tuple((i, math.exp(x - log_sum)) for i, x in zip(ids, logits, strict=True))


class Trials:
    """The trials of a round; those of tokens that were not kept are made when first looked at.

    Args:
        kept: the trials of kept tokens
        drafted: number of draft tokens
        tested: number of draft tokens that were tested
        accepted: number of draft tokens that were kept
        listed: makes the list of all trials, the kept ones included; it must not hold on to
            distributions, which are large
    """

    __slots__ = ("_list", "_listed", "accepted", "drafted", "kept", "tested")

    def __init__(
        self,
        kept: list[Trial],
        drafted: int,
        tested: int,
        accepted: int,
        listed: Callable[[], list[Trial]],
    ):
        self.kept, self.drafted, self.tested, self.accepted = kept, drafted, tested, accepted
        self._listed: Callable[[], list[Trial]] | None = listed
        self._list: list[Trial] | None = None

    @classmethod
    def of(cls, trials: list[Trial]) -> "Trials":
        """The trials from a complete list."""
        fates = [t.fate for t in trials if t.fate in DRAFTED]
        return cls(
            [t for t in trials if t.fate in KEPT],
            drafted=len(fates),
            tested=len(fates) - fates.count(Fate.DISCARDED),
            accepted=fates.count(Fate.ACCEPTED),
            listed=lambda: trials,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Trials.of, (self.every(),)

    def every(self) -> list[Trial]:
        if self._list is None:
            assert self._listed is not None  # dropped once the list is made
            self._list, self._listed = self._listed(), None
        return self._list


@dataclass(slots=True)
class Round:
    """One cycle of a decoder: its trials, the new answer, and the cost.

    Attributes:
        index: which round of the request it is, from 0
        tried: its trials; a list is converted
        nodes: the nodes after the kept part in the new answer. For a beam decoder these are the
            part of its best beam that differs from the last round's.
        tokens: the tokens of `nodes`
        keep: how many tokens of the earlier answer still stand
        provisional: whether a later round may take this back
        draft_seconds: wall time of drafting, waiting for other requests in its passes included
        verify_seconds: wall time of verifying, counted in the same way; tokens that the target
            draws in one call share its time equally
        target_calls: answers of the target
        draft_calls: answers of the draft model
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
