"""What a canary found, and its verdict (CanaryReport)."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from decoders import Divergence
from workbench.engines.canary.draws import LEVEL, Check, WrongRule
from workbench.engines.record import Speculation, plain

CAUGHT = 0.99  # of the made-up wrong rules, for draws without a finding to mean anything


@dataclass(frozen=True)
class GreedyText:
    """A greedy text of the server beside ours.

    Attributes:
        prefix: the text that both continue
        divergence: where they part, and why
    """

    prefix: str
    divergence: Divergence


@dataclass(frozen=True)
class CanaryReport:
    """What a canary found.

    Attributes:
        engine: the engine's name
        kind: its dialect
        model: the model that it serves, in its own words
        draws: texts that it drew, of those asked for
        asked: texts asked for
        checks: the tests of its draws
        controls: whether they would have found wrong rules
        greedy: its greedy texts
        dtype: the number type in which rounding was measured for them
        by_text: whether the server tells no token ids, so that only first tokens were tested, by
            their texts
        speculation: counts of its draft tokens over all draws; None if it tells none
        note: why draws are missing; "" if none are
    """

    engine: str
    kind: str
    model: str | None
    draws: int
    asked: int
    checks: tuple[Check, ...]
    controls: tuple[WrongRule, ...]
    greedy: tuple[GreedyText, ...]
    dtype: str
    by_text: bool
    speculation: Speculation | None
    note: str

    @property
    def unlike(self) -> bool:
        """Whether the draws refute the law."""
        return any(check.p < LEVEL for check in self.checks)

    @property
    def verdict(self) -> Literal["unlike", "fault", "like", "cannot tell"]:
        """ "like" needs a control that the same tests, with as many draws, did find."""
        if self.unlike:
            return "unlike"
        if any(text.divergence.verdict == "fault" for text in self.greedy):
            return "fault"
        strong = all(c.caught >= CAUGHT * c.times for c in self.controls)
        return "like" if strong and self.controls else "cannot tell"

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, with its verdict and level."""
        return {**plain(asdict(self)), "verdict": self.verdict, "level": LEVEL}
