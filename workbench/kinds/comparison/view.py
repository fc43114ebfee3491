"""The look of a comparison in files and beside another one, and its panels.

`workbench/web/strip.js` draws the panels, on the live page and in an exported report.
"""

import dataclasses
import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.runs import laps
from workbench.runs.estimates import Row, rows
from workbench.runs.ranking import finishes
from workbench.runs.record import Result, Run
from workbench.show import comparison, differences, laws, tables, web
from workbench.show.headline import headline, marks, why_not
from workbench.show.panel import Panel
from workbench.show.view import Body, Line, View
from workbench.studies.methods import method_of
from workbench.studies.text import ordinal


def run_panels(run: Run) -> list[str]:
    """The panels of a finished comparison, one JSON text each; [] for runs of other kinds."""
    return row_panels(rows(run.results), run)


def row_panels(rows: Iterable[Row], run: Run) -> list[str]:
    rows = list(rows)
    won = marks(rows, run.settings)
    fellows = {
        d: [f for f in group if f != d]
        for group in laws.by_chance(run.settings, run.decoders)
        for d in group
    }
    places = finished_in([row for row in rows if row.first.error is None])
    panels = []
    for row in rows:
        method = method_of(row.decoder, run.settings.get(row.decoder, {}))
        panel = Panel.finished(
            row,
            run.title,
            laws.claim_in(run.settings, row.decoder),
            won[row.decoder],
            fellows.get(row.decoder, []),
        )
        panels.append(
            dataclasses.replace(
                panel,
                place=places.get(row.decoder, panel.place),
                rule=laws.rule(method),
                head=laws.head(run.environment, method),
            ).to_json()
        )
    return panels


def finished_in(found: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """The place in which each decoder finished, in words, and why it is shared or unknown.

    If all places of a race are shared, nobody has one.
    """
    places, why = finishes(found), why_not([row.once for row in found])
    several = len(set(places)) > 1
    return {
        row.decoder: (
            ""
            if not several
            else f"shared {ordinal(place)}"
            if places.count(place) > 1
            else ordinal(place),
            why,
        )
        for row, place in zip(found, places, strict=True)
    }


def view(panels: Iterable[str | None], key: str) -> dict[str, Any]:
    """The value of the page's strip.

    Each panel travels as one text: Gradio walks nested data node by node, ten times a second.

    Args:
        panels: the panels; None for one that stays as it is
        key: the run
    """
    return {"run": key, "panels": list(panels)}


def body(run: Run) -> Body:
    """The results in sentences, coloured text with its cards and replay, figures and charts."""
    says = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline(run))
    texts = "".join(
        f"<h3>{html.escape(r.decoder)}</h3><pre>{html.escape(r.alone.text)}</pre>"
        for r in run.results
        if r.repeat == 0
    )
    panels = web.embed(view(run_panels(run), run.id))
    return Body(
        f"""{says}
<div id="panels">{texts}</div>
<h2>Figures</h2>
{tables.markup(tables.figures(run))}
{comparison.charts(rows(run.results), run.settings)}""",
        f'Workbench.show(document.getElementById("panels"), {panels});',
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
    told = dataclasses.asdict(result.server) if result.server else {}
    return {
        **{f"engine_{name}": told.get(name) for name in ("kind", "version", "model")},
        "seconds_to_first_token": laps.first(result.laps),
        "verdict": (result.agreement.verdict if result.agreement else None) or None,
    }


VIEW = View("Decoders side by side", body, columns, differences.comparisons)
