"""What a decoder did, as plain data: rounds, and the fate of every token tried in them."""

from dataclasses import dataclass, field
from enum import StrEnum

from decoders.shapes import NodeId, TokenId


class Fate(StrEnum):
    ACCEPTED = "accepted"  # a draft token that was kept
    REJECTED = "rejected"  # a draft token that the rule looked at and refused
    DISCARDED = "discarded"  # a draft token that the rule never reached
    CORRECTED = "corrected"  # the target's token in place of a refused draft
    BONUS = "bonus"  # the target's token after a draft kept whole
    SAMPLED = "sampled"  # the target's token with no draft involved
    SEARCHED = "searched"  # a token of a deterministic beam


KEPT = frozenset(Fate) - {Fate.REJECTED, Fate.DISCARDED}
DRAFTED = frozenset({Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED})


@dataclass(slots=True)
class Trial:
    """One token that was tried at one place of the tree. Several draws of one node are several trials.

    p and q are the probabilities that the rule compared (warped; over (beam, token) pairs for beam decoders), None where there
    was none to compare; `accept_probability` and the uniform `u` that decided it are None where nothing was tossed.
    `log_p` (nats, raw target) and `alternatives` (the five likeliest tokens and their raw target probabilities) are filled in
    for every kept token when the round is committed, and so is the index of that `round`.
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
    """One turn of a decoder's loop: what it tried, what now stands, and what that took.

    `nodes` are the tokens that the current answer gained (for a beam decoder the part of its best beam that differs from the
    last round's), of which the first `keep` of the earlier answer still stand. Seconds are wall time as this request saw it.
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
