"""The findings on load as a table, a chart and a few sentences."""

from collections.abc import Mapping, Sequence

from decoders import InputError
from workbench.kinds.advice.findings import DAMAGED, findings, ranged
from workbench.kinds.advice.loads import MOST_ASKED, Gain, Loads, under_load
from workbench.runs.record import Run
from workbench.show.looks import COLOURS, Look
from workbench.show.plots import Curve, curves
from workbench.show.spread import MISSING
from workbench.show.tables import Table
from workbench.studies.text import counted
from workbench.theory.schedules import vllm_flag

HEADS = ["requests at once", "draft tokens", "x greedy", "by the model"]
OF_GPU = ["GPU: draft tokens", "GPU: x greedy, by the model"]
MEASURED, MODEL = Look(COLOURS[0], "solid", "circle"), Look(COLOURS[1], "dash", "diamond")
ON_GPU = Look(COLOURS[2], "dot", "square")


def loads_of(run: Run) -> Loads | str:
    """The findings on load, or a sentence on why there are none; "" if they were not asked for."""
    try:
        found = findings(run)
        return (under_load(run, found) if found else None) or ""
    except InputError:  # the advice on single requests says why
        return ""
    except (ArithmeticError, LookupError, TypeError, ValueError):  # a file may hold any numbers
        return DAMAGED


def sentences(found: Loads) -> list[str]:
    """What a reader is told about load."""
    largest = max(found.measured, default=1)
    here = "On this machine, by measurement: "
    says = [here + verdict(found.measured, f"the largest load measured, {largest}")]
    says += [
        f"{counted(load, 'request')} at once could not be measured: {why}"
        for load, why in found.failed.items()
    ]
    roof = found.roof
    says.append(
        f"The model: a pass takes the longer of reading its weights and caches and of computing. "
        f"With the {roof.bandwidth / 1e9:.3g} GB/s and {roof.operations / 1e12:.3g} TFLOP/s that "
        f"this machine was measured to have, its cost of a round is off by "
        f"{found.mean_error:.0%} on average and by {found.worst_error:.0%} at worst, over "
        f"{counted(len(found.errors), 'measured cost')}."
    )
    if gpu := found.gpu_roof:
        says += [
            f"For a GPU of {gpu.bandwidth / 1e9:,g} GB/s and {gpu.operations / 1e12:,g} TFLOP/s "
            "with the pair in 16 bits, by this model, whose error there is not known: "
            + verdict(found.gpu, f"the largest load asked about, {MOST_ASKED:,}")
        ]
    return says


def verdict(gains: Mapping[int, Gain], largest: str) -> str:
    """At which load speculation stops paying, and the flags.

    Args:
        gains: by number of requests at once, in order
        largest: words for the largest of these numbers
    """
    if not gains:
        return "no load was measured."
    pays = [load for load, gain in gains.items() if gain.times.low > 1]
    loses = [load for load, gain in gains.items() if gain.times.high < 1]
    unsure = [load for load in gains if load not in pays and load not in loses]
    if pays and loses and loses[0] < pays[-1]:
        says = f"speculation pays at {_requests(pays)}, and does not pay at {_list(loses)}."
    elif pays and loses:
        says = f"speculation pays up to {_requests(pays[-1:])}, and stops paying at {loses[0]:,}."
    elif pays:
        most = largest if pays[-1] == max(gains) else _requests(pays[-1:])
        says = f"speculation pays up to {most}."
    elif not loses:
        says = f"speculation does not surely pay or stop paying up to {largest}."
    elif not unsure:
        says = f"speculation does not pay, from {_requests(loses[:1])} on."
    elif max(unsure) < loses[0]:
        says = f"speculation stops paying at {_requests(loses[:1])}."
    else:
        says = f"speculation does not pay at {_requests(loses)}."
    if unsure:
        says += f" Whether it pays is uncertain at {_list(unsure)}."
    return says + flags({load: gains[load].length if load in pays else 0 for load in gains})


def flags(lengths: Mapping[int, int]) -> str:
    """The best draft length where speculation pays, as flags; "" if it never does.

    Args:
        lengths: by number of requests at once, 0 where it does not pay
    """
    used = {load: length for load, length in lengths.items() if length}
    if not used:
        return ""
    load, length = next(iter(used.items()))
    return (
        f" For {counted(load, 'request')}: --set speculative.draft_length={length}; vLLM takes the "
        f"lengths of all loads as {vllm_flag(lengths)}, with its method and draft model added."
    )


def table(found: Loads) -> Table:
    """A row for each load."""
    loads = sorted({*found.modelled, *found.gpu})
    rows = [
        [
            f"{load:,}", _length(found.measured, load), _times(found.measured, load),
            _times(found.modelled, load), _length(found.gpu, load), _times(found.gpu, load),
        ]
        for load in loads
    ]  # fmt: skip
    heads = [*HEADS, *OF_GPU] if found.gpu else HEADS
    return Table(heads, [row[: len(heads)] for row in rows])


def chart(found: Loads) -> str:
    """The gain of the best draft length over the load, as HTML."""
    shown = [
        Curve("measured here", MEASURED, _points(found.measured)),
        Curve("by the model, here", MODEL, _points(found.modelled)),
        Curve("by the model, GPU", ON_GPU, _points(found.gpu)),
    ]
    return curves(
        "Load against gain",
        "Speed of the best draft length over greedy's at the same load.",
        [each for each in shown if each.points],
        "requests at once",
        "x greedy",
        [("greedy", Look("currentColor", "dot", "circle"), 1.0)],
        decades=2.0,  # loads are doubled
    )


def _points(gains: Mapping[int, Gain]) -> dict[float, tuple[float, float, float]]:
    return {
        load: (t.value, t.low, t.high) if t.high < float("inf") else (t.value, t.value, t.value)
        for load, gain in gains.items()
        for t in [gain.times]
    }


def _length(gains: Mapping[int, Gain], load: int) -> str:
    return str(gains[load].length) if load in gains else MISSING


def _times(gains: Mapping[int, Gain], load: int) -> str:
    if load not in gains:
        return MISSING
    times = gains[load].times
    return f"{times.value:.2f}" if times.low == times.high else ranged(times)


def _list(loads: Sequence[int]) -> str:
    *first, last = (f"{load:,}" for load in loads)
    return f"{', '.join(first)} and {last}" if first else last


def _requests(loads: Sequence[int]) -> str:
    return f"{_list(loads)} {'request' if loads == [1] else 'requests'} at once"
