"""What one decoder did, as plain data: the parts of a run."""

from dataclasses import dataclass

from workbench.measuring.gauges import Energy


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the five likeliest tokens at a place: `p` under the raw target."""

    id: int
    text: str
    p: float


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token of the output.

    id, node      vocabulary id, and its node in the request's tree (as in `RoundRecord`)
    text          its piece: the pieces of all tokens, one after the other, are the output's text; of a character that spans several
                  tokens the last one has it whole and the others have ""; so has a special token such as end of sequence
    fate, round   what became of it, in which round
    p, q          the probabilities the rule compared, None where there was none;   accept_probability, u  the toss, None without one
    log_p         nats, under the raw target;   alternatives  the likeliest tokens at this place, likeliest first
    """

    id: int
    node: int
    text: str
    fate: str
    round: int | None
    p: float | None
    q: float | None
    accept_probability: float | None
    u: float | None
    log_p: float | None
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One token that was tried, kept or not; several draws of one node are several trials.

    node, parent  in the request's tree; nodes below `RunResult.prompt_length` are the prompt
    token, text   vocabulary id, and a label to show: its text at this place, or an approximation where a character is unfinished
    log_p         nats, under the raw target; of kept tokens only
    """

    node: int
    parent: int
    token: int
    text: str
    fate: str
    p: float | None
    q: float | None
    accept_probability: float | None
    u: float | None
    log_p: float | None = None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One turn of a decoder: all it tried, and what then stood: the first `keep` tokens of the earlier output, and after them `nodes`.

    `draft_seconds` and `verify_seconds` are the models' wall time, `target_calls` and `draft_calls` forward passes.
    """

    index: int
    trials: list[TrialRecord]
    keep: int
    nodes: list[int]
    provisional: bool
    draft_seconds: float
    verify_seconds: float
    target_calls: int
    draft_calls: int


@dataclass(frozen=True, slots=True)
class GreedyCheck:
    """Whether a lossless decoder's output at temperature 0 is greedy's, token by token.

    differs_at  index of the first token that differs, None where identical
    gap         nats between greedy's token there and the other one, under the raw target in greedy's own run; None where the other
                is not among its five likeliest
    noise       nats by which the two runs' log-probabilities of the same tokens differ up to there: forward passes of different
                shapes round differently;   dtype  of the target's weights
    near_tie    the gap is within the noise of its two sides
    """

    identical: bool
    differs_at: int | None
    gap: float | None
    noise: float | None
    near_tie: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one decoder did with one seed.

    metrics       by the names of `decoders.Metrics`
    finished      why it ended ("end of sequence", "budget", "cancelled", ...), None where it failed
    error         one sentence where it failed; tokens, rounds and metrics then hold what there was until then
    prompt_length tokens of the prompt;   x_greedy  its tokens/s over greedy's with the same seed, None where greedy did not run
    greedy_check  only at temperature 0, for lossless decoders, where greedy ran
    """

    decoder: str
    repeat: int
    seed: int
    prompt_length: int
    text: str
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    metrics: dict[str, int | float | str | None]
    energy: Energy
    finished: str | None
    error: str | None = None
    x_greedy: float | None = None
    greedy_check: GreedyCheck | None = None
