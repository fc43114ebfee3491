"""The looks of a kind of runs in files and beside each other, and those of unknown kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.kinds.registry import part_of
from workbench.runs.record import Result, Run
from workbench.show.differences import settings
from workbench.show.tables import figures, markup, side_by_side

Line = dict[str, Any]  # of a CSV
APART = "<p>These runs share no decoder at the same batch size and scheme.</p>"


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
    return Body(f"<h2>Figures</h2>\n{markup(figures(run))}")


def checked(_: Run) -> Callable[[Result], Line]:
    return lambda r: {
        "differing": r.agreement and r.agreement.differing,
        "reference": r.agreement and r.agreement.reference,
        "errors": "; ".join(r.errors),
    }


def side_by_side_figures(a: Run, b: Run) -> str:
    found = side_by_side(a, b)
    return settings(a, b) + (markup(found) if found.rows else APART)


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
