"""Advice as a table and a sentence."""

import dataclasses

from decoders import Method
from workbench.experiments.advisor import Advice
from workbench.show.spread import MISSING
from workbench.show.tables import Table

WORTH = 1.05  # a speed-up below is none


def lines(advice: Advice) -> Table:
    """The decoders ranked by their speed-up: the measured one, or else the predicted."""
    rows = [
        [named(line.method), *(MISSING if x is None else f"{x:.2f}" for x in (line.predicted, line.measured)),
         MISSING if line.tokens is None else f"{line.tokens:.2f}", "theory" if line.predicted is not None else "measured only"]
        for line in advice.lines
    ]  # fmt: skip
    return Table(["decoder", "predicted x greedy", "measured x greedy", "tokens/round", "from"], rows)


def named(method: Method) -> str:
    """The decoder with the settings that are not its defaults."""
    changed = [f for f in dataclasses.fields(method) if getattr(method, f.name) != f.default]
    return " ".join([method.name, *(f"{f.name}={getattr(method, f.name)}" for f in changed)])


def verdict(advice: Advice) -> str:
    """What to do, in a few sentences."""
    best = advice.lines[0]
    costs = (
        f"A draft is accepted with the chance {advice.alpha:.2f} on average at temperature {advice.temperature:g}; a draft pass costs "
        f"{advice.costs.c:.2f} of a target pass, a round with 4 drafts {advice.costs.round(4) / advice.costs.step:.2f}."
    )
    if best.best < WORTH:
        return f"{costs} Nothing pays here: the best, {named(best.method)}, is at {best.best:.2f} of greedy decoding's speed."
    how = "measured" if best.measured is not None else "predicted"
    return f"{costs} It pays: {named(best.method)} runs at {best.best:.2f} times greedy decoding's speed ({how})."
