"""Figures of a report: curves over a setting, Pareto fronts, heat maps."""

import plotly.graph_objects as go

from workbench.experiments import figures
from workbench.experiments.pareto import front
from workbench.experiments.plan import Drawing
from workbench.experiments.report import Report
from workbench.show.figure import GREY, canvas, level, or_words
from workbench.show.looks import look

NOTHING = "nothing measured so far gives this figure"


def draw(found: Report, drawing: Drawing) -> list[go.Figure]:
    """One figure for a front or a heat map, one for each y of a curve."""
    if drawing.kind == "curve":
        return [_curve(found, drawing, y) for y in drawing.y]
    return [_front(found, drawing, y) for y in drawing.y] if drawing.kind == "front" else [_heat(found, drawing)]


def _curve(found: Report, drawing: Drawing, y: str) -> go.Figure:
    """y over a setting, a line for each rest of the label; whiskers are 95% intervals. Cells without the setting are levels."""
    figure = canvas(drawing.x.replace("_", " "), y, title=drawing.title)
    lines: dict[str, list[tuple[float, figures.Interval]]] = {}
    for cell in found.of_part(drawing.part):
        value, interval = figures.own_setting(cell, drawing.x), found.figure(y, cell)
        if interval is None:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = cell.label.replace(f" {drawing.x}={value}", "").replace(f", batch {value}", "")
            lines.setdefault(rest, []).append((value, interval))
        else:
            level(figure, interval.value, cell.label)
    for i, (name, points) in enumerate(lines.items()):
        points.sort(key=lambda p: p[0])
        style = look(i)
        figure.add_scatter(
            x=[x for x, _ in points], y=[p.value for _, p in points], name=name, mode="lines+markers",
            line={"color": style.colour, "dash": style.dash, "width": 2}, marker={"symbol": style.symbol, "size": 8},
            error_y={
                "array": [p.high - p.value for _, p in points], "arrayminus": [p.value - p.low for _, p in points],
                "symmetric": False, "color": GREY, "thickness": 1.2,
            },
            hovertemplate=f"{drawing.x} %{{x}}: %{{y:.3g}}<extra>{name}</extra>",
        )  # fmt: skip
    figure.update_layout(showlegend=len(lines) > 1)
    return figure if lines else or_words(figure, NOTHING)


def _front(found: Report, drawing: Drawing, y: str) -> go.Figure:
    """y against x, a point for each cell; a line joins those that none beats in both."""
    figure, points = canvas(drawing.x, y, title=drawing.title), []
    for cell in found.of_part(drawing.part):
        across, up = found.figure(drawing.x, cell), found.figure(y, cell)
        if across is not None and up is not None:
            points.append((cell.asked["decoder"], cell.label, across.value, up.value))
    for i, decoder in enumerate(dict.fromkeys(p[0] for p in points)):
        own, style = [p for p in points if p[0] == decoder], look(i)
        figure.add_scatter(
            x=[p[2] for p in own], y=[p[3] for p in own], name=decoder, mode="markers", customdata=[p[1] for p in own],
            marker={"color": style.colour, "symbol": style.symbol, "size": 9},
            hovertemplate="%{customdata}: %{x:.3g}, %{y:.3g}<extra></extra>",
        )  # fmt: skip
    best = [points[i] for i in front([p[2:] for p in points], drawing.x, y)]
    figure.add_scatter(
        x=[p[2] for p in best], y=[p[3] for p in best], mode="lines", name="Pareto front", line={"color": GREY, "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )  # fmt: skip
    return figure if points else or_words(figure, NOTHING)


def _heat(found: Report, drawing: Drawing) -> go.Figure:
    """The speed-up of each cell by category, or by batch size if there are no categories."""
    cells = [c for c in found.of_part(drawing.part) if figures.greedy_of(c, found.cells) not in (None, c)]
    names = sorted({category for cell in cells for category in figures.categories(cell)})
    figure = canvas("category" if names else "batch size", "", title=drawing.title or "times greedy")
    if names:
        rows = {
            c.label: [
                figures.figure("x greedy", c, figures.greedy_of(c, found.cells), figures.categories(c).get(n, []))
                for n in names
            ]
            for c in cells
        }
    else:
        names = sorted({c.asked["batch_size"] for c in cells})
        rows = {}
        for cell in cells:
            label = cell.label.replace(f", batch {cell.asked['batch_size']}", "")
            rows.setdefault(label, [None] * len(names))[names.index(cell.asked["batch_size"])] = found.figure(
                "x greedy", cell
            )
    values = [[v.value if v else None for v in row] for row in rows.values()]
    if not any(v is not None for row in values for v in row):
        return or_words(figure, NOTHING)
    figure.add_heatmap(
        z=values, x=[str(n) for n in names], y=list(rows), zmid=1, colorscale="RdBu", reversescale=True, texttemplate="%{z:.2f}",
        hovertemplate="%{y}, %{x}: %{z:.2f}<extra></extra>",
    )  # fmt: skip
    return figure.update_xaxes(type="category")
