"""A run as one HTML file that loads nothing: a frame for all kinds, with a body for each."""

import html
from collections.abc import Iterable

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from workbench.runs.record import Run
from workbench.show import tables, web
from workbench.show.view import view_of
from workbench.studies.text import shortened

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


def to_html(run: Run) -> str:
    """One file that shows the run as the page does."""
    view = view_of(run.kind)
    body = view.body(run)
    notes = "".join(f"<p>{_text(note)}</p>" for note in tables.notes(run))
    measured = f"<h2>Settings and environment</h2>\n{facts(tables.facts(run))}"
    content = f"{body.content}\n{notes}\n{measured}"
    title, made = shortened(run.title, TITLE_SHOWN), f"{run.created[:16].replace('T', ' ')} UTC"
    about = f"<p>{_text(made)} · {_text(run.models)} · run {run.id}</p>"
    name, heading = f"{title} · {made} · decoding run {run.id}", f"{view.heading}: {title}"
    return frame(name, heading, about + content, script=body.script, plotly=body.plotly)


def facts(found: Iterable[tuple[str, str]]) -> str:
    """Names and values, as a list."""
    return (
        "<dl>"
        + "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in found)
        + "</dl>"
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
