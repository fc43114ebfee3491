"""Findings of a batch run, and its look in files.

They are the agreement of its tokens, acceptance lengths, and the paper's tables.

Source:
    EMS-SD (arXiv 2405.07542).
"""

import html
import statistics
from collections.abc import Callable, Iterable

from workbench.runs.figures import BatchFigures, Row, label, speed, unsteady
from workbench.runs.record import Result, Run
from workbench.show import batch, quantities, tables
from workbench.show.quantities import MISSING, figure, padding_ratio
from workbench.show.view import Body, Line, View, checked, figure_html
from workbench.studies.schemes import ALONE, BASELINE, BASELINES, SCHEMES, baseline_scheme
from workbench.studies.text import counted

# On paper a chart has the width of its column, not of the window.
REDRAW = """for (const event of ["resize", "beforeprint", "afterprint"])
  addEventListener(event, () =>
  document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot)));"""
READINGS = ((False, "with the reading of prompts"), (True, "without the reading of prompts"))


def verdict(run: Run) -> str:
    """Sentences on whether all outputs have the tokens that they must have, and on failures."""
    compared = [r.agreement for r in run.results if r.agreement is not None]
    words = "Too little to compare."
    if differing := sum(a.differing for a in compared):
        words = (
            f"{counted(differing, 'output differs', 'outputs differ')} from the decoder's first: "
            "near-ties, rounded differently by passes of another shape."
        )
    elif compared:
        words = "Identical tokens in every scheme and at every batch size."
    for what, errors in (
        ("measurement", [r.error for r in run.results if r.error]),
        ("request", [error for r in run.results if not r.error for error in r.errors]),
    ):
        if errors:
            words += f" {counted(len(errors), what)} failed: {errors[0]}"
    return words


def findings(run: Run) -> list[str]:
    """The findings in sentences: the tokens, and each decoder's acceptance lengths."""
    figures = BatchFigures(run)
    each = {label(d): acceptance(figures, d) for d in figures.decoders}
    return [verdict(run), *(f"{name}: {words}" for name, words in each.items() if words)]


def acceptance(figures: BatchFigures, decoder: str) -> str:
    """A sentence on the spread of the samples' mean acceptance lengths; "" if none is known."""
    if not (means := figures.mean_acceptances(decoder)):
        return ""
    deviation = f", deviation {statistics.stdev(means):.2f}" if len(means) > 1 else ""
    return (
        f"{statistics.fmean(means):.2f} tokens per round, mean of "
        f"{counted(len(means), 'sample')} that range from {min(means):.2f} to "
        f"{max(means):.2f}{deviation}."
    )


def paper_table(figures: BatchFigures, decoder: str, decoding: bool) -> tables.Table:
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
    table = tables.Table(
        [
            "batch",
            *(BASELINES[base] for base in bases),
            *(SCHEMES[s].label for s in schemes),
            "padding ratio",
            "slowest prompt",
        ],
        [],
    )
    for size in figures.sizes:
        speeds = [_timed(figures.row(decoder, size, scheme), decoding) for scheme in schemes]
        ratio = padding_ratio(figures, decoder, size)
        least = figures.least_acceptance(decoder, size)
        table.rows.append(
            [
                str(size),
                *(_timed(figures.row(BASELINE, size, base), decoding)[0] for base in bases),
                *("" if speed == MISSING else f"{speed} ({times})" for speed, times in speeds),
                MISSING if ratio is None else quantities.percent(ratio),
                MISSING if least is None else f"{least:.2f}",
            ]
        )
    return table


def _timed(row: Row | None, decoding: bool) -> list[str]:
    if row is None:
        return [MISSING, MISSING]
    names = ("decoding", "decoding_x_greedy") if decoding else ("speed", "x_greedy")
    sure = not unsteady(row)
    return [
        figure(quantity, row, sure)
        for quantity in quantities.BATCH_QUANTITIES
        if quantity.name in names
    ]


def body(run: Run) -> Body:
    """Findings in sentences, charts and tables of each decoder, and the figures of every job."""
    figures = BatchFigures(run)
    parts = ["".join(f"<p>{html.escape(words)}</p>" for words in findings(run))]
    for decoder in figures.decoders:
        parts.append(f"<h2>{html.escape(label(decoder))}</h2>")
        for decoding, words in READINGS:
            parts.append(f"<p>tokens/s (times greedy at the same batch size), {words}</p>")
            parts.append(tables.markup(paper_table(figures, decoder, decoding)))
        parts.append(_cards(batch.OF_ONE, figures, decoder))
    if figures.decoders:
        parts += ["<h2>All decoders</h2>", _cards(batch.OF_ALL, figures, "")]
    parts += ["<h2>Figures</h2>", tables.markup(tables.figures(run))]
    return Body("\n".join(parts), REDRAW, plotly=True)


def _cards(cards: Iterable[batch.Card], figures: BatchFigures, decoder: str) -> str:
    each = (
        f"<section><h3>{html.escape(card.title)}</h3><p>{html.escape(card.says)}</p>"
        f"{figure_html(card.draw(figures, decoder, False))}</section>"
        for card in cards
    )
    return f'<div class="wb-charts">{"".join(each)}</div>'


def columns(run: Run) -> Callable[[Result], Line]:
    figures, each_has = BatchFigures(run), checked(run)

    def more(r: Result) -> Line:
        of = r.decoder, r.batch_size, r.scheme
        return each_has(r) | {
            "x_greedy": figures.times_greedy(*of),
            "decode_tokens_per_second": speed(r, decoding=True),
            "decode_x_greedy": figures.times_greedy(*of, decoding=True),
            "least_acceptance": figures.least_acceptance(r.decoder, r.batch_size),
        }

    return more


VIEW = View("Batches", body, columns)
