"""What a decoder did, as plain data: rounds, and the fate of every token tried in them."""

from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(slots=True)
class Round:
    """One cycle of a decoder: what it tried, what the answer is now, and what that took.

    keep            how many tokens of the earlier answer still stand
    nodes, tokens   what follows them in the new answer: for a beam decoder the part of its best beam that differs from the last round's
    provisional     a later round may take this back
    draft_seconds, verify_seconds   wall time of this request, waiting for others in its passes included
    """

    index: int
    trials: list[Trial]
    nodes: list[NodeId] = field(default_factory=list)
    tokens: list[TokenId] = field(default_factory=list)
    keep: int = 0
    provisional: bool = False
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    target_calls: int = 0
    draft_calls: int = 0

    @property
    def drafted(self) -> int:
        return sum(t.fate in DRAFTED for t in self.trials)

    @property
    def tested(self) -> int:
        return sum(t.fate in DRAFTED and t.fate != Fate.DISCARDED for t in self.trials)

    @property
    def accepted(self) -> int:
        return sum(t.fate == Fate.ACCEPTED for t in self.trials)
