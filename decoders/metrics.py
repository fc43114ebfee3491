"""The figures of a decoded text: its quality, and what it took."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from decoders.request import Request
from decoders.trace import Round


def perplexity(log_ps: Iterable[float]) -> float | None:
    """exp(-mean log p) of new tokens under the raw target (mtad.txt eq. 1); log_ps in nats; None for no tokens, and infinity for
    more than a float holds."""
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

    new_tokens         tokens of the output, the end-of-sequence token included
    seconds            wall time from admission to the end
    perplexity         of the new tokens under the raw target
    target_calls, draft_calls   answers with logits, one packed pass each;  prefill_calls  passes that only filled the cache
    target_passes, draft_passes   all forward passes: a model that is not packed may take several for an answer
    drafted, tested, accepted   draft tokens sent to the target, tested by the rule, kept (for beams: draws)
    acceptance_rate    accepted / drafted;   alpha  accepted / tested;   block_efficiency  new_tokens / target_calls
    bytes_read         weights and cache read by all passes; in a pass of n requests each is charged 1/n of the weights
    peak_cache_rows    most rows of one model's cache in use;   peak_cache_bytes  most bytes of one model's cache in use
    padded_tokens, padded_rows   tokens computed and cache rows kept only for `padding`, over both models
    padding_ratio      mean over rounds of padded rows / longest acceptance (ems-sd.txt eq. 10); None without padding
    joules, energy_source   measured energy and its source; None if it was not measured
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


def measure(request: Request, rounds: Iterable[Round], seconds: float) -> Metrics:
    """The figures of a request from its rounds and the wall time it took."""
    rounds = list(rounds)
    path = request.tree.lineage(request.answer, request.tree.prompt_length)
    drafted, tested, accepted = (sum(getattr(r, name) for r in rounds) for name in ("drafted", "tested", "accepted"))
    counts = request.ledger
    return Metrics(
        new_tokens=len(path),
        seconds=seconds,
        tokens_per_second=ratio(len(path), seconds),
        perplexity=perplexity(cast(float, request.kept[n].log_p) for n in path),  # every kept token has one
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
