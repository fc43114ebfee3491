"""A run as one HTML file that loads nothing: a frame that all kinds share, with a body for each."""

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from workbench.runs.estimates import BatchFigures, label, rows
from workbench.runs.record import Run
from workbench.show import batch, comparison, draws, strip, tables, web
from workbench.show.headline import headline
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw

# The report loads nothing and can send nothing, whatever a prompt or a model wrote into it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
STYLE = """html { scrollbar-gutter: stable; } body { margin: 0; }
.wb-report { min-height: 100vh; padding: 24px; background: var(--ground); font-family: system-ui, sans-serif; }
.wb-report dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; }
.wb-report dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
@media print { .wb-report { padding: 0; background: none; } }"""
DARK = 'document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);'

# On paper a chart has the width of its column, not of the window.
REDRAW = """for (const event of ["resize", "beforeprint", "afterprint"]) addEventListener(event, () =>
  document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot)));"""


@dataclass(frozen=True)
class Body:
    """What differs between kinds: a heading, what stands between it and the facts, a script that runs last, and whether Plotly draws."""

    heading: str
    content: str
    script: str = ""
    plotly: bool = False


def to_html(run: Run) -> str:
    """One file that shows the run as the page does."""
    body = _BODIES.get(run.kind, _other)(run)
    notes = "".join(f"<p>{_text(note)}</p>" for note in tables.notes(run))
    measured = f"<h2>What it was measured on</h2>\n{facts(tables.facts(run))}"
    content = f"{body.content}\n{notes}\n{measured}"
    return frame(f"Decoding run {run.id}", body.heading, content, script=body.script, plotly=body.plotly)


def facts(found: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, as a list."""
    return "<dl>" + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in found) + "</dl>"


def frame(title: str, heading: str, content: str, *, script: str = "", plotly: bool = False) -> str:
    """A whole file around what is already HTML; `title` and `heading` are texts, `plotly` says whether it holds figures of Plotly."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(title)}</title>
{web.head()}
<style>{STYLE}</style>
<script>{DARK}</script>
{f"<script>{get_plotlyjs()}</script>" if plotly else ""}
</head>
<body><main class="wb-report">
<h1>{_text(heading)}</h1>
{content}
</main>
<script>{script}</script>
</body>
</html>
"""


def _comparison(run: Run) -> Body:
    """What came out in sentences, coloured text with its cards and replay, figures and charts."""
    says = "".join(f"<p>{_text(sentence)}</p>" for sentence in headline(run))
    texts = "".join(
        f"<h3>{_text(r.decoder)}</h3><pre>{_text(r.alone.text)}</pre>" for r in run.results if r.repeat == 0
    )
    view = strip.view(strip.run_panels(run), run.id)
    content = f"""{says}
<div id="panels">{texts}</div>
<h2>Figures</h2>
{tables.markup(tables.figures(run))}
{comparison.charts(rows(run.results), run.settings)}"""
    return Body(
        "Decoders side by side", content, f'Workbench.show(document.getElementById("panels"), {web.embed(view)});'
    )


def _batch(run: Run) -> Body:
    """What was found in sentences, the charts and the paper's tables of each decoder, and the figures of every measurement."""
    figures = BatchFigures(run)
    parts = ["".join(f"<p>{_text(words)}</p>" for words in tables.findings(run))]
    for decoder in figures.decoders:
        parts.append(f"<h2>{_text(label(decoder))}</h2>")
        for decoding, words in ((False, "the reading of prompts included"), (True, "without the reading of prompts")):
            parts.append(f"<p>tokens/s (times greedy at the same batch size), {words}</p>")
            parts.append(tables.markup(tables.paper_table(figures, decoder, decoding)))
        parts.append(_cards(batch.OF_ONE, figures, decoder))
    if figures.decoders:
        parts += ["<h2>All decoders</h2>", _cards(batch.OF_ALL, figures, "")]
    parts += ["<h2>Figures</h2>", tables.markup(tables.figures(run))]
    return Body(f"Batches: {run.title}", "\n".join(parts), REDRAW, plotly=True)


def _draws(run: Run) -> Body:
    """What the draws say in sentences, the figures, and each decoder's tree."""
    content = f"{draws.headline(run)}\n{tables.markup(draws.table(run))}\n{draws.trees(run)}\n{draws.proof(run)}"
    return Body(f"Many draws: {run.title}", content)


def _other(run: Run) -> Body:
    """For kinds that this room does not know."""
    return Body(run.title, f"<h2>Figures</h2>\n{tables.markup(tables.figures(run))}")


_BODIES: dict[str, Callable[[Run], Body]] = {Comparison.kind: _comparison, Batch.kind: _batch, Draw.kind: _draws}


def _cards(cards: Iterable[batch.Card], figures: BatchFigures, decoder: str) -> str:
    each = (
        f"<section><h3>{_text(card.title)}</h3><p>{_text(card.says)}</p>{drawn(card.draw(figures, decoder, False))}</section>"
        for card in cards
    )
    return f'<div class="wb-charts">{"".join(each)}</div>'


def drawn(figure: go.Figure) -> str:
    """A figure as part of such a file."""
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})


def _text(value: object) -> str:
    return html.escape(str(value))
