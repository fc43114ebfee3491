"""The panels of runs, as the live page and the exported report show them in a strip.

`workbench/web/strip.js` draws them.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from decoders import catalog
from workbench.runs.estimates import Row, rows
from workbench.runs.ranking import finishes
from workbench.runs.record import Run
from workbench.show.headline import marks, why_not
from workbench.show.laws import by_chance, claim_in, rule
from workbench.show.panel import Panel
from workbench.studies.text import ordinal


def run_panels(run: Run) -> list[str]:
    """The panels of a finished comparison, one JSON text each; [] for runs of other kinds."""
    return row_panels(rows(run.results), run)


def row_panels(rows: Iterable[Row], run: Run) -> list[str]:
    """The panels of some rows of a comparison."""
    rows = list(rows)
    won = marks(rows, run.settings)
    fellows = {
        d: [f for f in group if f != d]
        for group in by_chance(run.settings, run.decoders)
        for d in group
    }
    places = finished_in([row for row in rows if row.first.error is None])
    panels = []
    for row in rows:
        panel = Panel.finished(
            row,
            run.title,
            claim_in(run.settings, row.decoder),
            won[row.decoder],
            fellows.get(row.decoder, []),
        )
        panels.append(
            dataclasses.replace(
                panel,
                place=places.get(row.decoder, panel.place),
                rule=rule(catalog[row.decoder](**run.settings.get(row.decoder, {}))),
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
