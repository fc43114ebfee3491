"""What a call returns: a prompt's output (Result) with its figures, and its rounds (Event)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from decoders.errors import ModelError
from decoders.request import Request
from decoders.shapes import TokenId
from decoders.trace import Round, Trial


def perplexity(log_ps: Iterable[float]) -> float | None:
    """exp(-mean log p) of new tokens under the raw target.

    Args:
        log_ps: the tokens' raw log-probabilities, in nats

    Returns:
        The perplexity; None without tokens, infinity if it is more than a float holds.

    Source:
        Qin et al. 2024 (MTAD, arXiv 2407.09722), eq. 1.
    """
    log_ps = list(log_ps)
    if not log_ps:
        return None
    try:
        return math.exp(-sum(log_ps) / len(log_ps))
    except OverflowError:
        return math.inf


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class Metrics:
    """One request's figures; a ratio whose denominator is zero is None.

    Attributes:
        new_tokens: tokens of the output, the end-of-sequence token included
        seconds: wall time from admission to the end
        tokens_per_second: new_tokens / seconds
        perplexity: perplexity of the new tokens under the raw target
        target_calls: the target's answers with logits, one packed pass each
        draft_calls: the draft model's answers with logits
        prefill_calls: passes that only filled the cache
        target_passes: all forward passes; a model that is not packed may take several an answer
        draft_passes: all forward passes of the draft model
        drafted: draft tokens sent to the target
        tested: draft tokens that the rule tested
        accepted: draft tokens that were kept; for beam decoders, these three count draws
        acceptance_rate: accepted / drafted
        alpha: accepted / tested
        block_efficiency: new_tokens / target_calls
        bytes_read: bytes of weights and cache that all passes read; in a pass of n requests, each
            is charged 1/n of the weights
        peak_cache_rows: most rows of one model's cache in use
        peak_cache_bytes: most bytes of one model's cache in use
        padded_tokens: tokens computed only because of `padding`, over both models
        padded_rows: cache rows kept only because of `padding`, over both models
        padding_ratio: mean over rounds of padded rows / longest acceptance; None without padding
        joules: measured energy; None if it was not measured
        energy_source: what measured the energy

    Source:
        EMS-SD (arXiv 2405.07542), eq. 10, for the padding ratio.
    """

    new_tokens: int
    seconds: float
    tokens_per_second: float | None
    perplexity: float | None
    target_calls: int
    draft_calls: int
    prefill_calls: int
    target_passes: int
    draft_passes: int
    drafted: int
    tested: int
    accepted: int
    acceptance_rate: float | None
    alpha: float | None
    block_efficiency: float | None
    bytes_read: float
    peak_cache_rows: int
    peak_cache_bytes: int
    padded_tokens: int
    padded_rows: int
    padding_ratio: float | None
    joules: float | None = None
    energy_source: str | None = None


def measure(request: Request, rounds: Sequence[Round], seconds: float) -> Metrics:
    """The figures of a finished request.

    Args:
        seconds: wall time from admission to the end
    """
    path = request.tree.lineage(request.answer, request.tree.prompt_length)
    drafted, tested, accepted = (
        sum([getattr(r, name) for r in rounds]) for name in ("drafted", "tested", "accepted")
    )
    counts = request.ledger
    return Metrics(
        new_tokens=len(path),
        seconds=seconds,
        tokens_per_second=ratio(len(path), seconds),
        # Every kept token has a log-probability.
        perplexity=perplexity([cast(float, request.trials[n].log_p) for n in path]),
        target_calls=counts.target_calls,
        draft_calls=counts.draft_calls,
        prefill_calls=counts.prefill_calls,
        target_passes=counts.target_passes,
        draft_passes=counts.draft_passes,
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        acceptance_rate=ratio(accepted, drafted),
        alpha=ratio(accepted, tested),
        block_efficiency=ratio(len(path), counts.target_calls),
        bytes_read=counts.bytes_read,
        peak_cache_rows=counts.peak_rows,
        peak_cache_bytes=counts.peak_cache_bytes,
        padded_tokens=counts.padded_tokens,
        padded_rows=counts.padded_rows,
        padding_ratio=ratio(sum(counts.padding_ratios), len(counts.padding_ratios)),
    )


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
