"""What a decoder did with one prompt, token by token and round by round."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from decoders import Fate
from workbench.runs.values import Amount, Count, one_of

FateName = Annotated[str, one_of(list(Fate))]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the five likeliest tokens at a place: `p` under the raw target."""

    id: Count
    text: str
    p: Amount


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of a text of which only the tokens are kept; `text` as in `TokenRecord`."""

    id: Count
    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first tokens of a text: `text` is a label for the last of them, `p` the probability that a text of the target, warped as
    sampled, begins with all of them."""

    tokens: list[Count]
    text: str
    p: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of the output.

    id, node      vocabulary id, and its node in the request's tree (as in `RoundRecord`)
    text          its piece; all pieces joined are the output's text. If a character spans several tokens, the last one has it whole
                  and the others have "", as has a special token such as end of sequence
    fate, round   what became of it, in which round
    p, q          the probabilities the rule compared, None if it compared none;   accept_probability, u  the toss, None if there was none
    log_p         nats, under the raw target;   alternatives  the likeliest tokens at this place, likeliest first
    """

    id: Count
    node: Count
    text: str
    fate: FateName
    round: Count | None
    p: Amount | None
    q: Amount | None
    accept_probability: Amount | None
    u: Amount | None
    log_p: Amount | None
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One token that was tried, kept or not; several draws of one node are several trials.

    node, parent  in the request's tree; nodes below `Sample.prompt_length` are the prompt; a parent comes before its children
    token, text   vocabulary id, and a label to show: its text at this place, or an approximation if a character is unfinished
    log_p         nats, under the raw target; of kept tokens only
    """

    node: Count
    parent: Annotated[int, Field(ge=-1, le=2**53)]
    token: Count
    text: str
    fate: FateName
    p: Amount | None
    q: Amount | None
    accept_probability: Amount | None
    u: Amount | None
    log_p: Amount | None = None


def _rooted(trials: list[TrialRecord]) -> list[TrialRecord]:
    """A circle of parents would keep a browser drawing for ever."""
    if any(t.parent >= t.node for t in trials):
        raise ValueError("a token is its own ancestor: parents have lower numbers than their children")
    return trials


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One turn of a decoder: all that it tried, and the output afterwards: the first `keep` tokens of the earlier output, then `nodes`.

    `draft_seconds` and `verify_seconds` are the models' wall time, `target_calls` and `draft_calls` forward passes.
    """

    index: Count
    trials: Annotated[list[TrialRecord], AfterValidator(_rooted)]
    keep: Count
    nodes: list[Count]
    provisional: bool
    draft_seconds: Amount
    verify_seconds: Amount
    target_calls: Count
    draft_calls: Count
