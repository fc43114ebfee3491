"""A run as a file: JSON (complete, reloadable), CSV (its figures, unrounded), HTML (the page as a report that needs nothing else)."""

import csv
import html
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from plotly.offline import get_plotlyjs

from workbench.runs.record import RunResult
from workbench.runs.store import Run
from workbench.show import comparison as charts
from workbench.show import strip as views
from workbench.show import web
from workbench.show.quantities import table

# The report loads nothing and can send nothing, whatever a prompt or a model wrote into it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def to_json(run: Run) -> str:
    """Strict JSON; `Run.from_json` reads it back."""
    return json.dumps(run.to_json(), ensure_ascii=False, allow_nan=False, indent=1)


def to_csv(run: Run) -> str:
    """A row for each decoder and repeat; an empty cell is a figure that there is none of, never a zero."""
    rows = [
        {
            "run": run.id,
            "decoder": r.decoder,
            "repeat": r.repeat,
            "seed": r.seed,
            **r.metrics,
            "x_greedy": r.x_greedy,
            "identical_to_greedy": r.greedy_check and r.greedy_check.identical,
            "finished": r.finished,
            "error": r.error,
        }
        for r in run.results
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_html(run: Run) -> str:
    """One file that shows the run as the page does: coloured text with its cards and replay, charts, figures, environment."""
    texts = "".join(f"<h3>{_text(r.decoder)}</h3><pre>{_text(r.text)}</pre>" for r in run.results if r.repeat == 0)
    figures = "".join(
        f.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False})
        for f in charts.figures(run.results)
    )
    view = views.view(views.run_panels(run), run.id)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>Decoding run {_text(run.id)}</title>
{web.head()}
<style>body {{ margin: 0; }} .wb-report {{ min-height: 100vh; padding: 24px; background: var(--ground); font-family: system-ui, sans-serif; }}
.wb-report dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; }}
.wb-report dd {{ margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }}</style>
<script>document.documentElement.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);</script>
<script>{get_plotlyjs()}</script>
</head>
<body><main class="wb-report">
<h1>Decoders side by side</h1>
<div id="panels">{texts}</div>
<h2>Figures</h2>
{figures_table(run.results)}
{figures}
<h2>What they were measured on</h2>
<dl>{"".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts(run))}</dl>
</main>
<script>Workbench.show(document.getElementById("panels"), {web.embed(view)});</script>
</body>
</html>
"""


def figures_table(results: Sequence[RunResult]) -> str:
    """A row for each decoder, a column for each figure."""
    heads, rows = table(results)
    head = "".join(f"<th>{_text(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wb-table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


WRITERS: dict[str, Callable[[Run], str]] = {"json": to_json, "csv": to_csv, "html": to_html}


def facts(run: Run) -> list[tuple[str, str]]:
    """Prompt, settings and environment of a run as (name, value) in words, as text."""
    found = {"prompt": run.prompt, "created": run.created, **run.settings, **run.environment}
    return [(name, _words(value)) for name, value in found.items() if value not in ({}, None)]


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return str(value)


def _text(value: object) -> str:
    return html.escape(str(value))
