"""A figure of a row as text: over its repeats, with its deviation, and with ≈ if it is in doubt."""

import statistics
from dataclasses import dataclass

from workbench.runs import timing
from workbench.runs.figures import BatchFigures, Row, unsteady
from workbench.runs.timing import Estimate
from workbench.show.quantities import PADDING, Quantity

MISSING = "–"  # shown if there is no figure
UNSURE = "≈"  # before a speed that something disturbed


@dataclass(frozen=True)
class Spread:
    """A figure of a row.

    Attributes:
        mean: its mean over repeats; of a single repeat that was timed several times, the estimate
        deviation: the sample standard deviation over repeats
        range: the estimate of a single repeat, with its range
    """

    mean: float
    deviation: float | None = None
    range: Estimate | None = None

    @property
    def below(self) -> float:
        """How far below its mean the figure may lie, by its range or by one deviation."""
        return self.mean - self.range.low if self.range else self.deviation or 0.0

    @property
    def above(self) -> float:
        return self.range.high - self.mean if self.range else self.deviation or 0.0

    @property
    def ends(self) -> tuple[float, float] | None:
        """The range of the figure; None if it is not known."""
        known = self.below or self.above
        return (self.mean - self.below, self.mean + self.above) if known else None


def spread(quantity: Quantity, row: Row) -> Spread | None:
    """The figure over the repeats of a row; None if no repeat has it."""
    if quantity.together is not None and len(row.results) > 1:
        value = quantity.together(row)
        return None if value is None else Spread(value)
    both = [
        (r, greedy) for r, greedy in zip(row.results, row.greedy, strict=True) if r.error is None
    ]
    values = [v for r, greedy in both if (v := quantity.value(r, greedy)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Spread(statistics.fmean(values), statistics.stdev(values))
    timed = quantity.timed(*both[0]) if quantity.timed and len(both) == 1 else None
    if timed is None or timed.laps < 2:
        return Spread(values[0])
    # The figure that an earlier version estimated from these timings may lie outside of the range.
    return Spread(timed.value, None, timed)


def figure(quantity: Quantity, row: Row, sure: bool = True, more: int = 0) -> str:
    """The figure as text, with its deviation after ± if there are repeats.

    Args:
        quantity: the figure
        row: the row
        sure: whether it can be trusted; ≈ marks a timed figure that cannot
        more: digits more than usual

    Returns:
        the text; "–" if there is no figure
    """
    found = spread(quantity, row)
    if found is None:
        return MISSING
    sure = sure and not (quantity.over_greedy and greedy_disturbed(row))
    text = marked(quantity.show(found.mean, more), sure or quantity.timed is None)
    deviation = quantity.show(found.deviation or 0.0)
    return text if deviation == quantity.show(0.0) else f"{text} ± {deviation}"


def greedy_disturbed(row: Row) -> bool:
    """Whether something disturbed the greedy timings that a row is compared with."""
    return any(timing.disturbances(greedy) for greedy in row.greedy if greedy is not None)


def marked(text: str, sure: bool) -> str:
    """The text of a figure from the clock or the meter; with ≈ if it is not sure."""
    return text if sure else f"{UNSURE}{text}"


def shown(quantity: Quantity, row: Row) -> str:
    """The figure for tables.

    Its range is in brackets if it was timed several times and the timings differ.
    """
    found = spread(quantity, row)
    text = figure(quantity, row, quantity.timed is None or not unsteady(row))
    between = found and found.range
    return (
        f"{text} ({range_text(quantity, between)})"
        if between and between.low < between.high
        else text
    )


def range_text(quantity: Quantity, found: Estimate) -> str:
    """ "248 to 255": the ends of the range; "248" if all timings agree."""
    low, high = quantity.show(found.low), quantity.show(found.high)
    return low if low == high else f"{low} to {high}"


def padding_ratio(figures: BatchFigures, decoder: str, size: int) -> float | None:
    """The padding ratio of the vanilla scheme, mean over repeats; None if it was not measured.

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542), equation 10.
    """
    row = figures.row(decoder, size, "vanilla")
    found = row and spread(PADDING, row)
    return found.mean if found else None
