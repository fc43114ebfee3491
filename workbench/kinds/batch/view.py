"""The look of a batch study in files."""

import html
from collections.abc import Callable, Iterable

from workbench.kinds.batch.findings import findings, paper_table
from workbench.runs.estimates import BatchFigures, label, speed
from workbench.runs.record import Result, Run
from workbench.show import batch, tables
from workbench.show.report import drawn
from workbench.show.view import Body, Line, View, checked

# On paper a chart has the width of its column, not of the window.
REDRAW = """for (const event of ["resize", "beforeprint", "afterprint"])
  addEventListener(event, () =>
  document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot)));"""
READINGS = ((False, "with the reading of prompts"), (True, "without the reading of prompts"))


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
        f"{drawn(card.draw(figures, decoder, False))}</section>"
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
