"""What one request has cost so far: time, forward passes, and the bytes that they read."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from decoders.trace import Round


@dataclass
class Ledger:
    """Clock and counts of one request; each round takes what has come together since the last one.

    clock   returns seconds
    target_calls, draft_calls, prefill_calls   answers of a model; one that several requests share counts once for each
    target_passes, draft_passes   forward passes: a model that is not packed may take several for an answer
    bytes_read   of weights and cache; the weights of a shared pass are read once, so each request is charged its share
    padding_ratios   pads / tau_max for each alignment of the target's caches: the mean over rounds and requests is the paper's r
                     (ems-sd.txt eq. 9-10)
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

    def start(self) -> None:
        self._began = self._mark = self.clock()

    def charge(self, model: str) -> None:
        """Charge the time since the last call to drafting or verifying."""
        now = self.clock()
        if self._mark is not None:
            self._spent[model] += now - self._mark
        self._mark = now

    @property
    def seconds(self) -> float:
        """Wall time from the start to the last charge."""
        return self._mark - self._began if self._began is not None and self._mark is not None else 0.0

    def count(self, model: str, answered: bool = True, passes: int = 1) -> None:
        """Count an answer, or a part of the prompt that was read, and the forward passes that it took."""
        if model == "target":
            self.target_passes += passes
            self.target_calls += answered
        else:
            self.draft_passes += passes
            self.draft_calls += answered
        self.prefill_calls += not answered

    def settle(self, entry: Round) -> None:
        """Write into a round what has come together since the last one. The time since the last pass is the rule's, which belongs to
        verifying."""
        self.charge("target")
        entry.draft_seconds, entry.verify_seconds = self._spent["draft"], self._spent["target"]
        entry.target_calls, entry.draft_calls = (
            self.target_calls - self._settled[0],
            self.draft_calls - self._settled[1],
        )
        self._settled = self.target_calls, self.draft_calls
        self._spent = {"target": 0.0, "draft": 0.0}
