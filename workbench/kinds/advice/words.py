"""Advice as a table and a few sentences."""

import dataclasses
import math

from decoders import Method
from decoders.settings import Law
from workbench.experiments.figures import LEAST_ITEMS, Interval
from workbench.experiments.speedups import Advice, Line
from workbench.show.laws import claim
from workbench.show.spread import MISSING
from workbench.show.tables import Table

# A warning is shown if more than this share of the timings was disturbed.
MOST_DISTURBED = 0.1


def lines(advice: Advice) -> Table:
    """The decoders ranked by their speed-up: the measured one, or else the predicted."""
    rows = [
        [named(line.method), ranged(line.predicted), ranged(line.measured), f"{line.tokens:.2f}",
         claim(line.method, advice.temperature).chip]
        for line in advice.lines
    ]  # fmt: skip
    speeds = [f"{kind} x greedy (95%)" for kind in ("predicted", "measured")]
    return Table(["decoder", *speeds, "tokens/round", "its text"], rows)


def named(method: Method) -> str:
    """The decoder's name with the settings that differ from its defaults."""
    changed = [f for f in dataclasses.fields(method) if getattr(method, f.name) != f.default]
    return " ".join([method.name, *(f"{f.name}={getattr(method, f.name)}" for f in changed)])


def ranged(found: Interval | None) -> str:
    """ "1.06 (0.95 to 1.17)"."""
    if found is None:
        return MISSING
    between = f" ({found.low:.2f} to {found.high:.2f})" if math.isfinite(found.high) else ""
    return f"{found.value:.2f}{between}"


def verdict(advice: Advice) -> str:
    """Sentences on the costs, the best exact decoder and, if it is another one, the fastest."""
    costs = (
        f"On average a draft is accepted with the chance {advice.alpha:.2f} at temperature "
        f"{advice.temperature:g}; a draft pass costs {advice.costs.c:.2f} of a target pass, a "
        f"round with 4 drafts {advice.costs.round(4) / advice.costs.step:.2f}."
    )
    best = advice.lines[0]
    exact = next(line for line in advice.lines if line.method.law == Law.TARGET)
    found = [f"The best exact decoder is {_judged(exact)}"]
    if best is not exact:
        says = claim(best.method, advice.temperature).chip
        found.append(f"The fastest of all is {_judged(best, f' ({says})')}")
    return " ".join([costs, *found])


def doubts(advice: Advice) -> str:
    """A sentence about disturbed timings; "" if there were few."""
    often = {says: n for says, n in advice.disturbed.items() if n > MOST_DISTURBED * advice.timings}
    found = [f"in {n} of {advice.timings} timings {says}" for says, n in often.items()]
    return f"The machine was busy: {'; '.join(found)}. Ask again when it is idle." if found else ""


def _judged(line: Line, says: str = "") -> str:
    """A decoder, its speed, and whether it pays: only if the whole interval is above 1."""
    found, measured = line.best, line.measured is not None
    speed = (
        f"{named(line.method)}{says}, {'measured' if measured else 'predicted'} at {ranged(found)} "
        "times greedy decoding's speed."
    )
    if found.low > 1:
        return f"{speed} {'It pays.' if measured else 'It is predicted to pay.'}"
    if found.high < 1:
        return f"{speed} {'It does not pay.' if measured else 'It is predicted not to pay.'}"
    if math.isfinite(found.high):
        return f"{speed} The interval includes 1: whether it pays is uncertain."
    return (
        f"{speed} Whether it pays is uncertain: an interval needs at least {LEAST_ITEMS} prompts."
    )
