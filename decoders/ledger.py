"""Clock and counts of one request (Ledger)."""

import time
from collections.abc import Callable, Sequence
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
    _ahead: dict[str, list[float]] = field(default_factory=lambda: {"target": [], "draft": []})
    _spent: dict[str, float] = field(default_factory=lambda: {"target": 0.0, "draft": 0.0})
    _settled: tuple[int, int] = (0, 0)

    def start(self) -> None:
        self._began = self._mark = self.clock()

    def charge(self, model: str) -> None:
        """Charge the time since the last charge to a model: to verifying or to drafting."""
        now = self.clock()
        if self._mark is not None:
            self._spent[_part(model)] += now - self._mark
        self._mark = now

    def charge_pass(
        self, model: str, weight: float = 1.0, ahead: Sequence[tuple[str, float, int]] = ()
    ) -> None:
        """Charge a pass, and keep back the shares of passes that were made together with it.

        Args:
            model: "target", or who drafts
            weight: its share, in the unit of those in `ahead`; 0 if it was not made itself
            ahead: for each model that made some of those: its name, the share of each pass, and
                their number
        """
        self._charge_rest()
        part = _part(model)
        before = self._spent[part]
        self.charge(model)
        if ahead:
            shares = weight + sum(each * count for _, each, count in ahead)
            unit = (self._spent[part] - before) / shares
            self._spent[part] = before + weight * unit
            for other, each, count in ahead:
                self._ahead[_part(other)] += [each * unit] * count

    def charge_ahead(self, model: str, count: int) -> None:
        """Count and charge passes that were made before they were asked for."""
        part = _part(model)
        self.count(model, count, count)
        for _ in range(count):
            self._spent[part] += self._ahead[part].pop()

    def _charge_rest(self) -> None:
        """Charge passes that nobody has asked for, since their tokens were guessed wrong."""
        for part, shares in self._ahead.items():
            self._spent[part] += sum(shares)
            shares.clear()

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
        """Write the time and calls since the last round into a round.

        The time since the last pass is the rule's, so it counts as verifying.

        Args:
            entry: the round
            last: whether no other follows
        """
        self.charge("target")
        if last:
            self._charge_rest()
        entry.draft_seconds, entry.verify_seconds = self._spent["draft"], self._spent["target"]
        entry.target_calls, entry.draft_calls = (
            self.target_calls - self._settled[0],
            self.draft_calls - self._settled[1],
        )
        self._settled = self.target_calls, self.draft_calls
        self._spent = {"target": 0.0, "draft": 0.0}


def _part(model: str) -> str:
    """Whose time a model's passes take: a head drafts too."""
    return "target" if model == "target" else "draft"
