"""What a call returns: the output of a prompt (Result), and its rounds as they happen (Event)."""

from dataclasses import dataclass

from decoders.errors import ModelError
from decoders.metrics import Metrics
from decoders.shapes import TokenId
from decoders.trace import Round, Trial


@dataclass(frozen=True)
class Result:
    """The output of one prompt.

    Attributes:
        text: the output without the prompt, the end-of-sequence token and the stop string
        tokens: the output without the prompt, but with the end-of-sequence token and the tokens
            that complete a stop string
        trials: for each token the trial that produced it: fate, round, p, q, u, log_p, alternatives
        rounds: everything that the decoder tried, round by round
        metrics: counts, speed and perplexity
        prompt_tokens: the token ids of the prompt
        finished: why the output ended
        error: why this request of a list failed; the other fields then hold what it had decoded so
            far
    """

    text: str
    tokens: list[TokenId]
    trials: list[Trial]
    rounds: list[Round]
    metrics: Metrics
    prompt_tokens: list[TokenId]
    finished: str | None
    error: ModelError | None = None


@dataclass(frozen=True)
class Event:
    """One round of one request.

    The request's output is now the first `keep` tokens of its earlier output, followed by `append`.

    Attributes:
        request: the number of the request
        round: the round; None in the last event of a request
        keep: how many tokens of the earlier output stay
        append: the tokens that follow them
        provisional: whether a later round may take this back (beams)
        result: set in the last event of a request
    """

    request: int
    round: Round | None
    keep: int
    append: list[TokenId]
    provisional: bool
    result: Result | None = None
