"""The look of a comparison in files and beside another one, and its panels.

`workbench/web/strip.js` draws the panels, on the live page and in an exported report.
"""

import dataclasses
import html
from collections.abc import Callable, Iterable
from typing import Any

from workbench.runs import timing
from workbench.runs.figures import rows
from workbench.runs.record import Result, Run
from workbench.show import comparison, differences, tables
from workbench.show.headline import verdict
from workbench.show.panel import picture
from workbench.show.view import Body, Line, View, figure_html


def view(panels: Iterable[str | None], key: str) -> dict[str, Any]:
    """The value of the page's strip.

    Each panel travels as one text: Gradio walks nested data node by node, ten times a second.

    Args:
        panels: the panels; None for one that stays as it is
        key: the run
    """
    return {"run": key, "panels": list(panels)}


# The texts are drawn from what the picture has, so that a file holds it once.
PANELS = """const found = document.getElementById("picture");
if (found) {
  const { run, panels } = JSON.parse(found.dataset.shown);
  const value = { run, panels: panels.map((panel) => JSON.stringify(panel)) };
  Workbench.show(document.getElementById("panels"), value);
}"""


def body(run: Run) -> Body:
    """The picture, the verdict, coloured texts with their cards, figures and charts."""
    says, lines = f"<p>{html.escape(verdict(run))}</p>", rows(run.results)
    figures = [*comparison.charts(lines, run.settings), *comparison.details(lines)]
    texts = "".join(
        f"<h3>{html.escape(r.decoder)}</h3><pre>{html.escape(r.alone.text)}</pre>"
        for r in run.results
        if r.repeat == 0
    )
    return Body(
        f"""{picture(run)}
{says}
<div id="panels">{texts}</div>
<h2>Figures</h2>
{tables.markup(tables.figures(run))}
{"".join(map(figure_html, figures))}""",
        PANELS,
        plotly=True,
    )


def columns(run: Run) -> Callable[[Result], Line]:
    served = any(r.server for r in run.results)
    return lambda r: {
        "identical_to_greedy": None if r.agreement is None else not r.agreement.differing,
        **(_of_engine(r) if served else {}),
        "finished": r.alone.finished,
        "error": r.error,
    }


def _of_engine(result: Result) -> Line:
    """What only engines have."""
    server = dataclasses.asdict(result.server) if result.server else {}
    return {
        **{f"engine_{name}": server.get(name) for name in ("kind", "version", "model")},
        "seconds_to_first_token": timing.first(result.laps),
        "verdict": (result.agreement.verdict if result.agreement else None) or None,
    }


VIEW = View("Decoders side by side", body, columns, differences.comparisons)
