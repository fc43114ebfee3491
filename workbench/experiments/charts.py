"""Figures of a report: curves over a setting, Pareto fronts, heat maps."""

from collections.abc import Sequence

from workbench.experiments import figures
from workbench.experiments.plan import Drawing
from workbench.experiments.report import Report, shown
from workbench.experiments.rows import Kept
from workbench.show import plots
from workbench.show.axes import nothing
from workbench.show.looks import look, look_of
from workbench.show.plots import Curve, Point
from workbench.show.quantities import FIGURES


def front(points: Sequence[tuple[float, float]], x: str, y: str) -> list[int]:
    """The Pareto front of points; equal points are all on it.

    Args:
        points: (x, y) of each point
        x: name of the first figure, which says whether higher is better
        y: name of the second

    Returns:
        indices, ordered by x, of the points for which no other is at least as good in both figures
        and better in one
    """
    signs = [1.0 if FIGURES[name].better == "higher" else -1.0 for name in (x, y)]
    turned = [(signs[0] * a, signs[1] * b) for a, b in points]
    beaten = [any(c >= a and d >= b and (c, d) != (a, b) for c, d in turned) for a, b in turned]
    return sorted((i for i in range(len(points)) if not beaten[i]), key=points.__getitem__)


NOTHING = "No measurement for this figure yet."
RANGES = "Whiskers: 95% intervals over prompts or batches."


def draw(found: Report, drawing: Drawing) -> list[str]:
    """One figure for a heat map, one for each y of a curve or a front."""
    if drawing.kind == "heat":
        return [_heat(found, drawing)]
    one = _curve if drawing.kind == "curve" else _front
    return [one(found, drawing, y) for y in drawing.y]


def _title(drawing: Drawing, y: str) -> str:
    title = drawing.title or f"{y} by {drawing.x.replace('_', ' ')}"
    return f"{title}: {y}" if drawing.title and len(drawing.y) > 1 else title


def _curve(found: Report, drawing: Drawing, y: str) -> str:
    """y over a setting, with a line for each remaining label. Cells without it are levels."""
    lines: dict[str, dict[float, tuple[float, float, float]]] = {}
    levels: dict[str, float] = {}
    names = found.names(drawing.part)
    for cell in found.of_part(drawing.part):
        value = {**cell.asked, **cell.asked["settings"]}.get(drawing.x)
        interval = found.figure(y, cell)
        if interval is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = names[cell.cell].replace(f" {drawing.x}={value}", "")
            # Batch size, seed and the like stand behind a comma.
            rest = rest.replace(f", {drawing.x.removesuffix('_size')} {value:g}", "")
            lines.setdefault(rest, {})[value] = (interval.value, interval.low, interval.high)
        else:
            levels[names[cell.cell]] = interval.value
    if not lines:
        return nothing(_title(drawing, y), "", NOTHING)
    curves = [
        Curve(name, look(i), dict(sorted(points.items())))
        for i, (name, points) in enumerate(lines.items())
    ]
    beside = [(name, look(i), value) for i, (name, value) in enumerate(levels.items(), len(curves))]
    says = f"{RANGES} Dotted: without this setting." if beside else RANGES
    return plots.curves(_title(drawing, y), says, curves, drawing.x.replace("_", " "), y, beside)


def _front(found: Report, drawing: Drawing, y: str) -> str:
    """y against x, a point for each cell; a line joins the Pareto front."""
    names = found.names(drawing.part)
    points = [
        p
        for c in found.of_part(drawing.part)
        if (p := _point(found, c, names[c.cell], drawing.x, y))
    ]
    if not points:
        return nothing(_title(drawing, y), "", NOTHING)
    best = [points[i] for i in front([(p.x, p.y) for p in points], drawing.x, y)]
    says = f"The dotted line joins the points that no other point beats in both figures. {RANGES}"
    return plots.scatter(_title(drawing, y), says, points, drawing.x, y, best)


def _point(found: Report, cell: Kept, name: str, x: str, y: str) -> Point | None:
    a, b = found.figure(x, cell), found.figure(y, cell)
    if a is None or b is None:
        return None
    return Point(
        name,
        look_of(cell.asked["decoder"]),
        a.value,
        b.value,
        f"{shown(a, '')} {x}, {shown(b, '')} {y}",
        (a.low, a.high),
        (b.low, b.high),
    )


def _heat(found: Report, drawing: Drawing) -> str:
    """The speed-up of each cell by category, or by batch size if there are no categories."""
    title = drawing.title or "times greedy"
    cells = [
        c for c in found.begun(drawing.part) if figures.greedy_of(c, found.cells) not in (None, c)
    ]
    names = sorted({category for cell in cells for category in figures.categories(cell)})
    rows: dict[str, list[float | None]] = {}
    called = found.names(drawing.part)
    if names:
        for cell in cells:
            each = figures.by_category(figures.TIMES_GREEDY, cell, found.cells, names)
            rows[called[cell.cell]] = [v.value if v else None for v in each]
    else:
        names = sorted({c.asked["batch_size"] for c in cells})
        for cell in cells:
            size, value = cell.asked["batch_size"], found.figure(figures.TIMES_GREEDY, cell)
            row = rows.setdefault(
                called[cell.cell].replace(f", batch {size}", ""), [None] * len(names)
            )
            row[names.index(size)] = value.value if value else None
    if not any(v is not None for row in rows.values() for v in row):
        return nothing(title, "", NOTHING)
    return plots.heat(
        title, "Blue is faster than greedy decoding, orange slower.", [str(n) for n in names], rows
    )
