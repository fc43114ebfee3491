"""A decoder's actions, their cost, and what a call returns.

Actions are rounds, with the fate of every token tried in them; the ledger counts their cost. A call
returns a prompt's output (Result) with its figures, and its rounds (Event).
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import cast

from decoders.errors import ModelError
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
DRAFTED = Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED
TESTED = Fate.ACCEPTED, Fate.REJECTED


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


@dataclass(slots=True)
class Round:
    """One cycle of a decoder: its trials, the new answer, and the cost.

    Attributes:
        index: which round of the request it is, from 0
        trials: everything that was tried in it
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
        return sum(t.fate in TESTED for t in self.trials)

    @property
    def accepted(self) -> int:
        return sum(t.fate is Fate.ACCEPTED for t in self.trials)


@dataclass(kw_only=True)
class Counts:
    """What one request cost, besides time.

    Attributes:
        target_calls: the target's answers with logits; one that requests share counts once for each
        draft_calls: the draft model's answers with logits, counted in the same way
        prefill_calls: parts of the prompt that were read without an answer, to fill the cache
        target_passes: all forward passes; a model that is not packed may take several an answer
        draft_passes: all forward passes of the draft model
        bytes_read: bytes of weights and cache that all passes read; in a pass of n requests, each
            is charged 1/n of the weights
        peak_cache_rows: most rows of one model's cache in use
        peak_cache_bytes: most bytes of one model's cache in use
        padded_tokens: tokens computed only because of `padding`, over both models
        padded_rows: cache rows kept only because of `padding`, over both models
    """

    target_calls: int = 0
    draft_calls: int = 0
    prefill_calls: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    bytes_read: float = 0.0
    peak_cache_rows: int = 0
    peak_cache_bytes: int = 0
    padded_tokens: int = 0
    padded_rows: int = 0


@dataclass
class Ledger(Counts):
    """Clock and counts of one request; each round takes what was added since the last round.

    Attributes:
        clock: returns seconds
        padding_ratios: pads / tau_max for each alignment of the target's caches; the mean over
            rounds and requests is the paper's r

    Source:
        EMS-SD (arXiv 2405.07542), eq. 9-10, for the padding ratio.
    """

    clock: Callable[[], float] = time.perf_counter
    padding_ratios: list[float] = field(default_factory=list)
    _began: float | None = None
    _mark: float | None = None
    _spent: dict[str, float] = field(default_factory=lambda: {"target": 0.0, "draft": 0.0})
    _settled: tuple[int, int] = (0, 0)
    _shares: deque[tuple[float, float, int, int]] = field(default_factory=deque)

    def start(self) -> None:
        self._began = self._mark = self.clock()

    def charge(self, model: str) -> None:
        """Charge the time since the last charge to a model: to verifying or to drafting."""
        now = self.clock()
        if self._mark is not None:
            # A head drafts too.
            self._spent["target" if model == "target" else "draft"] += now - self._mark
        self._mark = now

    def share(self, rounds: int) -> None:
        """Divide what was spent and counted since the last round among the next rounds.

        The tokens of one call of the target are rounds of their own.
        """
        draft, verify, *calls = self._since()
        for i in range(rounds):
            target_calls, draft_calls = (n // rounds + (i < n % rounds) for n in calls)
            self._shares.append((draft / rounds, verify / rounds, target_calls, draft_calls))

    def _since(self) -> tuple[float, float, int, int]:
        """Seconds of drafting and of verifying, and calls of both models, since it was last asked.

        The time since the last pass is the rule's, so it counts as verifying.
        """
        self.charge("target")
        calls = self.target_calls - self._settled[0], self.draft_calls - self._settled[1]
        spent, self._spent = self._spent, {"target": 0.0, "draft": 0.0}
        self._settled = self.target_calls, self.draft_calls
        return spent["draft"], spent["target"], *calls

    @property
    def seconds(self) -> float:
        """Wall time from the start to the last charge."""
        return (
            self._mark - self._began if self._began is not None and self._mark is not None else 0.0
        )

    def count(self, model: str, answers: int = 1, passes: int = 1) -> None:
        """Count answers, or a part of the prompt that was read, and the forward passes for them.

        Args:
            model: "target", or who drafts
            answers: 0 for a part of the prompt
            passes: forward passes that they took
        """
        if model == "target":
            self.target_passes += passes
            self.target_calls += answers
        else:
            self.draft_passes += passes
            self.draft_calls += answers
        self.prefill_calls += not answers

    def peak(self, rows: int, cache_bytes: int) -> None:
        self.peak_cache_rows = max(self.peak_cache_rows, rows)
        self.peak_cache_bytes = max(self.peak_cache_bytes, cache_bytes)

    def settle(self, entry: Round, last: bool = False) -> None:
        """Write the time and calls since the last round, or its share of them, into a round.

        Args:
            last: whether no other follows: then tokens of a call after it are not counted
        """
        own = self._since()
        shared = self._shares.popleft() if self._shares else (0.0, 0.0, 0, 0)
        entry.draft_seconds, entry.verify_seconds = own[0] + shared[0], own[1] + shared[1]
        entry.target_calls, entry.draft_calls = own[2] + shared[2], own[3] + shared[3]
        while last and self._shares:
            draft, verify, target_calls, draft_calls = self._shares.popleft()
            entry.draft_seconds += draft
            entry.verify_seconds += verify
            self.target_calls -= target_calls
            self.draft_calls -= draft_calls


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


@dataclass(kw_only=True)
class Metrics(Counts):
    """One request's figures; a ratio whose denominator is zero is None.

    Attributes:
        new_tokens: tokens of the output, the end-of-sequence token included
        seconds: wall time from admission to the end
        tokens_per_second: new_tokens / seconds
        perplexity: perplexity of the new tokens under the raw target
        drafted: draft tokens sent to the target
        tested: draft tokens that the rule tested
        accepted: draft tokens that were kept; for beam decoders, these three count draws
        acceptance_rate: accepted / drafted
        alpha: accepted / tested
        block_efficiency: new_tokens / target_calls
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
    drafted: int
    tested: int
    accepted: int
    acceptance_rate: float | None
    alpha: float | None
    block_efficiency: float | None
    padding_ratio: float | None
    joules: float | None = None
    energy_source: str | None = None


def measure(
    tokens: Sequence[Trial], rounds: Sequence[Round], counts: Ledger, seconds: float
) -> Metrics:
    """The figures of a finished request.

    Args:
        tokens: the trials of its output
        rounds: all its rounds
        counts: what they cost
        seconds: wall time from admission to the end
    """
    drafted, tested, accepted = (
        sum([getattr(r, name) for r in rounds]) for name in ("drafted", "tested", "accepted")
    )
    return Metrics(
        new_tokens=len(tokens),
        seconds=seconds,
        tokens_per_second=ratio(len(tokens), seconds),
        # Every kept token has a log-probability.
        perplexity=perplexity([cast(float, trial.log_p) for trial in tokens]),
        drafted=drafted,
        tested=tested,
        accepted=accepted,
        acceptance_rate=ratio(accepted, drafted),
        alpha=ratio(accepted, tested),
        block_efficiency=ratio(len(tokens), counts.target_calls),
        **{each.name: getattr(counts, each.name) for each in fields(Counts)},
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
