"""The findings of a run of advice, as a table and a few sentences."""

import math

from decoders import InputError, Method, catalog
from decoders.settings import Law
from workbench.experiments.figures import LEAST_ITEMS, Interval
from workbench.kinds.advice.speedups import ranked
from workbench.kinds.advice.study import TEXTS, Advice
from workbench.kinds.advice.timings import Findings, Line, Timed
from workbench.runs.record import Result, Run
from workbench.show.laws import claim, head
from workbench.show.quantities import significant
from workbench.show.spread import MISSING
from workbench.show.tables import Table
from workbench.studies.settings import changed
from workbench.studies.study import GONE

# A warning is shown if more than this share of the timings was disturbed.
MOST_DISTURBED = 0.1
HEADS = [
    "decoder", "predicted x greedy (95%)", "measured x greedy (95%)", "tokens/round", "its text",
    "J/token",
]  # fmt: skip
DAMAGED = "The figures of this run are damaged: they give no advice."
LATER = (
    "A head drafts worse at later places of a draft, so what is predicted for more than one draft "
    "token is too high; have every draft length measured."
)
NOTHING = "Nothing is known until every decoder has been measured on a prompt."


def findings(run: Run) -> Findings | None:
    """What the run says of single requests, from the prompts on which every decoder was timed.

    A decoder that failed on some prompt is left out.

    Returns:
        None if there is no such prompt, as after an early stop

    Raises:
        InputError: if the texts are too short to time
    """
    study, alone = Advice.from_json(run.study), [r for r in run.results if r.batch_size == 1]
    failed = {_method(study, r) for r in alone if r.errors or not r.laps}
    methods = [m for m in (*study.needed, *study.others) if m not in failed]
    each: dict[int, dict[Method, Result]] = {}
    for result in alone:
        each.setdefault(result.repeat, {})[_method(study, result)] = result
    whole = [one for one in each.values() if one.keys() >= set(methods)]
    if not whole or failed & set(study.needed):
        return None
    betas = [one[TEXTS].alone.chances for one in whole]
    timed = {m: [Timed.of(one[m]) for one in whole] for m in methods if m != TEXTS}
    return ranked(betas, timed, study.settings.temperature)


def _method(study: Advice, result: Result) -> Method:
    """The decoder of a result, with its settings."""
    known = {method.name: method for method in study.others}
    return known.get(result.decoder) or catalog[result.decoder](**result.settings)


def sentences(run: Run) -> tuple[str, str, Table | None]:
    """What a reader is told: a warning or "", what was found, and the table of the decoders."""
    try:
        found = findings(run)
    except InputError as error:
        return "", str(error), None
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a file may hold any numbers
        return "", DAMAGED, None
    if not found:
        return "", NOTHING, None
    by_head = head(run.environment, catalog["speculative"]())
    guessed = by_head and not Advice.from_json(run.study).measure_all
    warnings = [doubts(found), LATER if guessed else ""]
    return " ".join(filter(None, warnings)), verdict(found), table(found)


def unread(run: Run) -> list[str]:
    """A sentence on results of an earlier version that are shown no more; [] if there are none."""
    return [GONE["loads"]] if any(result.batch_size > 1 for result in run.results) else []


def table(found: Findings) -> Table:
    """The decoders ranked by their speed-up: the measured one, or else the predicted.

    Energy has a column only if any was measured.
    """
    rows = [
        [named(line.method), ranged(line.predicted), ranged(line.measured), f"{line.tokens:.2f}",
         claim(line.method, found.temperature).chip,
         MISSING if line.joules is None else significant(line.joules)]
        for line in found.lines
    ]  # fmt: skip
    metered = any(line.joules is not None for line in found.lines)
    shown = len(HEADS) if metered else len(HEADS) - 1
    return Table(HEADS[:shown], [row[:shown] for row in rows])


def named(method: Method) -> str:
    """The decoder's name with the settings that differ from its defaults."""
    return " ".join([method.name, *(f"{k}={value}" for k, value in changed(method).items())])


def ranged(found: Interval | None) -> str:
    """ "1.06 (0.95 to 1.17)"."""
    if found is None:
        return MISSING
    between = f" ({found.low:.2f} to {found.high:.2f})" if math.isfinite(found.high) else ""
    return f"{found.value:.2f}{between}"


def verdict(found: Findings) -> str:
    """Sentences on the costs, the best exact decoder and, if it is another one, the fastest."""
    costs = (
        f"On average a draft is accepted with the chance {found.alpha:.2f} at temperature "
        f"{found.temperature:g}; a draft pass costs {found.costs.c:.2f} of a target pass, a "
        f"round with 4 drafts {found.costs.round(4) / found.costs.step:.2f}."
    )
    best = found.lines[0]
    exact = next(line for line in found.lines if line.method.law == Law.TARGET)
    says = [costs, f"The best exact decoder is {_judged(exact)}"]
    if best is not exact:
        chip = claim(best.method, found.temperature).chip
        says.append(f"The fastest of all is {_judged(best, f' ({chip})')}")
    return " ".join([*says, *_beams(found)])


def _beams(found: Findings) -> list[str]:
    """A sentence on speculative beam search beside the search whose beams it has."""
    speeds = {line.method.name: line.measured for line in found.lines}
    ours, plain = speeds.get("speculative_beam_search"), speeds.get("beam_search")
    if not ours or not plain:
        return []
    pays = "whether it pays is uncertain, for their intervals overlap"
    if ours.low > plain.high or ours.high < plain.low:
        pays = "it pays" if ours.low > plain.high else "it does not pay"
    ratio = ours.value / plain.value
    return [f"Speculative beam search is {ratio:.2f} times as fast as beam search: {pays}."]


def doubts(found: Findings) -> str:
    """A sentence about disturbed timings; "" if there were few."""
    often = {says: n for says, n in found.disturbed.items() if n > MOST_DISTURBED * found.timings}
    each = "; ".join(f"in {n} of {found.timings} timings {says}" for says, n in often.items())
    return f"The machine was busy: {each}. Ask again when it is idle." if each else ""


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
