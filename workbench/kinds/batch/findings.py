"""Findings of a batch run: agreement of its tokens, acceptance lengths, and the paper's tables.

Source:
    EMS-SD (arXiv 2405.07542).
"""

import statistics

from workbench.runs.estimates import BatchFigures, Row, label, unsteady
from workbench.runs.record import Run
from workbench.show.quantities import BATCH_QUANTITIES, percent
from workbench.show.spread import MISSING, figure, padding_ratio
from workbench.show.tables import Table
from workbench.studies.schemes import ALONE, BASELINE, BASELINES, SCHEMES, baseline_scheme
from workbench.studies.text import counted


def verdict(run: Run) -> str:
    """Sentences on whether all outputs have the tokens that they must have, and on failures."""
    compared = [r.agreement for r in run.results if r.agreement is not None]
    differing = sum(a.differing for a in compared)
    words = [
        "Identical tokens in every scheme and at every batch size."
        if compared
        else "Too little to compare."
    ]
    if differing:
        words = [
            f"{counted(differing, 'output differs', 'outputs differ')} from the decoder's first: "
            "near-ties, rounded differently by passes of another shape."
        ]
    broken = [r.error for r in run.results if r.error]
    failed = [e for r in run.results if not r.error for e in r.errors]
    for what, errors in (("measurement", broken), ("request", failed)):
        if errors:
            words.append(f"{counted(len(errors), what)} failed: {errors[0]}")
    return " ".join(words)


def findings(run: Run) -> list[str]:
    """The findings in sentences: the tokens, and each decoder's acceptance lengths."""
    figures = BatchFigures(run)
    return [
        verdict(run),
        *(
            f"{label(d)}: {acceptance(figures, d)}"
            for d in figures.decoders
            if figures.mean_acceptances(d)
        ),
    ]


def acceptance(figures: BatchFigures, decoder: str) -> str:
    """A sentence on the spread of the samples' mean acceptance lengths; "" if none is known."""
    means = figures.mean_acceptances(decoder)
    if not means:
        return ""
    deviation = f", deviation {statistics.stdev(means):.2f}" if len(means) > 1 else ""
    return (
        f"{statistics.fmean(means):.2f} tokens per round, mean of "
        f"{counted(len(means), 'sample')} that range from {min(means):.2f} to "
        f"{max(means):.2f}{deviation}."
    )


def paper_table(figures: BatchFigures, decoder: str, decoding: bool) -> Table:
    """Tokens/s of one decoder, with the speed-up over greedy in brackets.

    Dynamic batches are compared with greedy in dynamic batches.

    Args:
        figures: the figures of a run
        decoder: the name of the decoder
        decoding: whether to leave out the reading of prompts, as the paper does; dynamic batches
            have no such figure

    Source:
        EMS-SD (arXiv 2405.07542), tables 2 to 4.
    """
    schemes = figures.schemes(decoder, decoding)
    bases = dict.fromkeys(map(baseline_scheme, schemes)) or [ALONE]
    heads = [
        "batch",
        *(BASELINES[base] for base in bases),
        *(SCHEMES[s].label for s in schemes),
        "padding ratio",
        "slowest prompt",
    ]
    lines = []
    for size in figures.sizes:
        speeds = [
            _with_speed_up(figures.row(decoder, size, scheme), decoding) for scheme in schemes
        ]
        ratio, least = (
            padding_ratio(figures, decoder, size),
            figures.least_acceptance(decoder, size),
        )
        lines.append(
            [
                str(size),
                *(_speed(figures.row(BASELINE, size, base), decoding) for base in bases),
                *speeds,
                MISSING if ratio is None else percent(ratio),
                MISSING if least is None else f"{least:.2f}",
            ]
        )
    return Table(heads, lines)


def _with_speed_up(row: Row | None, decoding: bool) -> str:
    speed = _speed(row, decoding)
    return "" if row is None or speed == MISSING else f"{speed} ({_timed(row, decoding)[1]})"


def _speed(row: Row | None, decoding: bool) -> str:
    return MISSING if row is None else _timed(row, decoding)[0]


def _timed(row: Row, decoding: bool) -> list[str]:
    """The figures in tokens/s and in times greedy."""
    names, sure = (
        ("decoding", "decoding_x_greedy") if decoding else ("speed", "x_greedy"),
        not unsteady(row),
    )
    return [figure(quantity, row, sure) for quantity in BATCH_QUANTITIES if quantity.name in names]
