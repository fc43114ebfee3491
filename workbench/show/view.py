"""The looks of runs: as one HTML file that loads nothing, in a CSV, and beside each other.

A report has a frame for all kinds, and a body for each.
"""

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from workbench.kinds.registry import part_of
from workbench.runs.record import Result, Run
from workbench.show import differences, tables, web
from workbench.studies.text import shortened

Line = dict[str, Any]  # of a CSV
# The report loads nothing and can send nothing, whatever a prompt or a model wrote into it.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
)
STYLE = """html { scrollbar-gutter: stable; } body { margin: 0; }
.wb-report { min-height: 100vh; padding: 24px; background: var(--ground);
  font-family: system-ui, sans-serif; }
.wb-report dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; }
.wb-report dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
@media print { .wb-report { padding: 0; background: none; } }"""
DARK = (
    'document.documentElement.classList.toggle("dark", '
    'matchMedia("(prefers-color-scheme: dark)").matches);'
)
TITLE_SHOWN = 80  # characters of a prompt


@dataclass(frozen=True)
class Body:
    """The part of a report between its title and its facts.

    Attributes:
        content: HTML
        script: a script that runs last
        plotly: whether it holds figures of Plotly
    """

    content: str
    script: str = ""
    plotly: bool = False


def with_figures(run: Run) -> Body:
    return Body(f"<h2>Figures</h2>\n{tables.markup(tables.figures(run))}")


def checked(_: Run) -> Callable[[Result], Line]:
    return lambda r: {
        "differing": r.agreement and r.agreement.differing,
        "reference": r.agreement and r.agreement.reference,
        "errors": "; ".join(r.errors),
    }


def side_by_side_figures(a: Run, b: Run) -> str:
    found = tables.side_by_side(a, b)
    apart = "<p>These runs share no decoder at the same batch size and scheme.</p>"
    return differences.settings(a, b) + (tables.markup(found) if found.rows else apart)


@dataclass(frozen=True)
class View:
    """The looks of runs of one kind.

    Attributes:
        heading: a report's name for the run, before its title
        body: the body of its report
        columns: for a run, the fields of a result's line in its CSV beyond those of every result
        beside: two runs as HTML
    """

    heading: str
    body: Callable[[Run], Body] = with_figures
    columns: Callable[[Run], Callable[[Result], Line]] = checked
    beside: Callable[[Run, Run], str] = side_by_side_figures


def view_of(kind: str) -> View:
    """The view of this kind, or one of any run if the kind is unknown."""
    part = part_of(kind, "view")
    return View(kind) if part is None else part.VIEW


def to_html(run: Run) -> str:
    """One file that shows the run as the page does."""
    view = view_of(run.kind)
    body = view.body(run)
    notes = "".join(f"<p>{_text(note)}</p>" for note in tables.notes(run))
    facts = "".join(
        f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in tables.facts(run)
    )
    title, made = shortened(run.title, TITLE_SHOWN), f"{run.created[:16].replace('T', ' ')} UTC"
    return frame(
        f"{title} · {made} · decoding run {run.id}",
        f"{view.heading}: {title}",
        f"<p>{_text(made)} · {_text(run.models)} · run {run.id}</p>{body.content}\n{notes}\n"
        f"<h2>Settings and environment</h2>\n<dl>{facts}</dl>",
        script=body.script,
        plotly=body.plotly,
    )


def frame(title: str, heading: str, content: str, *, script: str = "", plotly: bool = False) -> str:
    """A whole file.

    Args:
        title: its title, as text
        heading: its heading, as text
        content: its content, as HTML
        script: a script that runs last
        plotly: whether it holds figures of Plotly
    """
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


def drawn(figure: go.Figure) -> str:
    """A figure as part of such a file."""
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})


def _text(value: object) -> str:
    return html.escape(str(value))
