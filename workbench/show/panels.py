"""The panels of a comparison, one for each decoder, as plain data for the scripts."""

import dataclasses
from collections.abc import Iterable, Sequence

from decoders import Method
from workbench.runs.figures import Row, finishes, rows
from workbench.runs.record import Run
from workbench.show import laws
from workbench.show.headline import marks, why_not
from workbench.show.panel import Panel
from workbench.studies.settings import method_of
from workbench.studies.text import ordinal

COPIES = ("lookup", "suffix")  # sources whose drafts stand in the text already


def run_panels(run: Run) -> list[str]:
    """The panels of a finished comparison, one JSON text each; [] for runs of other kinds."""
    return row_panels(rows(run.results), run)


def row_panels(rows: Iterable[Row], run: Run) -> list[str]:
    rows = list(rows)
    won = marks(rows)
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
                source=source(method),
            ).to_json()
        )
    return panels


def finished_in(found: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """The place in which each decoder finished, in words, and why it is shared or unknown.

    If all of them share one place, nobody has one.
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


def source(method: Method) -> str:
    """Where a decoder's drafts come from.

    Returns:
        "text" if they are copied from the text so far, "head" or "model" if one of these writes
        them, "counts" for anything else; "" if it drafts nothing
    """
    own = getattr(method, "parts", (None,))[0]
    if own is None and not method.uses_draft:
        return ""
    if method.uses_head:
        return "head"
    if method.uses_draft:
        return "model"
    return "text" if getattr(own, "name", "") in COPIES else "counts"
