"""A figure of a row as text: over its repeats, with how far it may lie off, and with ≈ if something disturbed it."""

import statistics
from dataclasses import dataclass

from workbench.runs import estimates
from workbench.runs.estimates import BatchFigures, Row
from workbench.runs.laps import Estimate
from workbench.show.quantities import PADDING, Quantity

MISSING = "–"  # shown if there is no figure
UNSURE = "≈"  # before a speed that something disturbed


@dataclass(frozen=True)
class Spread:
    """A figure of a row: its mean over repeats with the sample standard deviation, or, of a single repeat that was timed several times,
    the estimate with its range."""

    mean: float
    deviation: float | None = None
    range: Estimate | None = None

    @property
    def below(self) -> float:
        """How far the figure may lie lower, by its range or by one deviation."""
        return self.mean - self.range.low if self.range else self.deviation or 0.0

    @property
    def above(self) -> float:
        return self.range.high - self.mean if self.range else self.deviation or 0.0


def spread(quantity: Quantity, row: Row) -> Spread | None:
    """Over the repeats of a row; None if no repeat has the figure."""
    if quantity.together is not None and len(row.results) > 1:
        value = quantity.together(row)
        return None if value is None else Spread(value)
    both = [(r, greedy) for r, greedy in zip(row.results, row.greedy, strict=True) if r.error is None]
    values = [v for r, greedy in both if (v := quantity.value(r, greedy)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Spread(statistics.fmean(values), statistics.stdev(values))
    timed = quantity.timed(*both[0]) if quantity.timed and len(both) == 1 else None
    if timed is None or timed.laps < 2:
        return Spread(values[0])
    # What an earlier version made of the same timings may lie outside of their range.
    return Spread(timed.value, None, timed)


def figure(quantity: Quantity, row: Row, sure: bool = True) -> str:
    """The figure as text, with its deviation after ± if there are repeats; "–" if there is none. ≈ marks one that is not `sure`."""
    found = spread(quantity, row)
    if found is None:
        return MISSING
    text = quantity.show(found.mean)
    if quantity.timed is not None and not sure:
        text = f"{UNSURE}{text}"
    deviation = quantity.show(found.deviation or 0.0)
    return text if deviation == quantity.show(0.0) else f"{text} ± {deviation}"


def shown(quantity: Quantity, row: Row) -> str:
    """The same for tables, with its range in brackets if it was timed several times and they differ."""
    found = spread(quantity, row)
    text = figure(quantity, row, quantity.timed is None or not estimates.unsteady(row))
    between = found and found.range
    return f"{text} ({range_text(quantity, between)})" if between and between.low < between.high else text


def range_text(quantity: Quantity, found: Estimate) -> str:
    """ "248 to 255": between which the figure lies; "248" if all timings say the same."""
    low, high = quantity.show(found.low), quantity.show(found.high)
    return low if low == high else f"{low} to {high}"


def padding_ratio(figures: BatchFigures, decoder: str, size: int) -> float | None:
    """That of the vanilla scheme, mean over repeats (ems-sd.txt eq. 10); None if it was not measured."""
    row = figures.row(decoder, size, "vanilla")
    found = row and spread(PADDING, row)
    return found.mean if found else None
