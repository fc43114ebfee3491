"""Clock and counts of one request (Ledger)."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from decoders.trace import Round


@dataclass
class Ledger:
    """Clock and counts of one request; each round takes what was added since the last round.

    Attributes:
        clock: returns seconds
        target_calls: answers of the target; one that requests share counts once for each
        draft_calls: answers of the draft model, counted in the same way
        prefill_calls: parts of the prompt that were read without an answer
        target_passes: forward passes; a model that is not packed may take several per answer
        draft_passes: forward passes of the draft model
        padded_tokens: tokens that were computed only because of padding
        padded_rows: cache rows that were kept only because of padding
        padding_ratios: pads / tau_max for each alignment of the target's caches; the mean over
            rounds and requests is the paper's r
        bytes_read: bytes of weights and cache; a shared pass reads the weights once, so each
            request is charged its share
        peak_rows: most rows of one model's cache in use
        peak_cache_bytes: most bytes of one model's cache in use

    Source:
        EMS-SD (arXiv 2405.07542), eq. 9-10, for the padding ratio.
    """

    clock: Callable[[], float] = time.perf_counter
    target_calls: int = 0
    draft_calls: int = 0
    prefill_calls: int = 0
    target_passes: int = 0
    draft_passes: int = 0
    padded_tokens: int = 0
    padded_rows: int = 0
    padding_ratios: list[float] = field(default_factory=list)
    bytes_read: float = 0.0
    peak_rows: int = 0
    peak_cache_bytes: int = 0
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
            self._spent[_part(model)] += now - self._mark
        self._mark = now

    def share(self, rounds: int) -> None:
        """Divide what was spent and counted since the last round among the next rounds.

        The tokens of one call of the target are rounds of their own.
        """
        self.charge("target")
        draft, verify = (self._spent[part] / rounds for part in ("draft", "target"))
        calls = self.target_calls - self._settled[0], self.draft_calls - self._settled[1]
        for i in range(rounds):
            target_calls, draft_calls = (n // rounds + (i < n % rounds) for n in calls)
            self._shares.append((draft, verify, target_calls, draft_calls))
        self._spent = {"target": 0.0, "draft": 0.0}
        self._settled = self.target_calls, self.draft_calls

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
        """Take note of how much of one model's cache is in use."""
        self.peak_rows = max(self.peak_rows, rows)
        self.peak_cache_bytes = max(self.peak_cache_bytes, cache_bytes)

    def settle(self, entry: Round, last: bool = False) -> None:
        """Write the time and calls since the last round, or its share of them, into a round.

        The time since the last pass is the rule's, so it counts as verifying.

        Args:
            entry: the round
            last: whether no other follows: then tokens of a call after it are not counted
        """
        self.charge("target")
        shared = self._shares.popleft() if self._shares else (0.0, 0.0, 0, 0)
        entry.draft_seconds = self._spent["draft"] + shared[0]
        entry.verify_seconds = self._spent["target"] + shared[1]
        entry.target_calls = self.target_calls - self._settled[0] + shared[2]
        entry.draft_calls = self.draft_calls - self._settled[1] + shared[3]
        while last and self._shares:
            draft, verify, target_calls, draft_calls = self._shares.popleft()
            entry.draft_seconds += draft
            entry.verify_seconds += verify
            self.target_calls -= target_calls
            self.draft_calls -= draft_calls
        self._settled = self.target_calls, self.draft_calls
        self._spent = {"target": 0.0, "draft": 0.0}


def _part(model: str) -> str:
    """Whose time a model's passes take: a head drafts too."""
    return "target" if model == "target" else "draft"
