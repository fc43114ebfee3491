"""Parts that figures share; the style sheet colours their texts for either ground."""

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from workbench.show.looks import Look

GREY = "#808691"  # readable on either ground


def canvas(x: str = "", y: str = "", *, height: int = 330) -> go.Figure:
    axis = {
        "gridcolor": "rgba(128,134,145,0.18)",
        "zeroline": False,
        "automargin": True,
        "title_font_size": 12,
    }
    return go.Figure(
        layout={
            "height": height, "margin": {"l": 8, "r": 20, "t": 36, "b": 8}, "bargap": 0.4,
            "template": {}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": GREY, "size": 12, "family": "ui-sans-serif, system-ui, sans-serif"},
            "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0, "font_size": 11},
            "xaxis": axis | {"title": {"text": x}}, "yaxis": axis | {"title": {"text": y}},
        }
    )  # fmt: skip


def line(
    figure: go.Figure, points: Mapping[Any, float | None], name: str, style: Look, hover: str
) -> None:
    """Add a line with a mark at each point.

    Args:
        figure: the figure
        points: x -> y, None for a gap
        name: its name in the legend
        style: its look
        hover: Plotly's template of the text at a point
    """
    figure.add_scatter(
        x=list(points), y=list(points.values()), name=name, mode="lines+markers", connectgaps=True,
        line={"color": style.colour, "dash": style.dash, "width": 2},
        marker={"symbol": style.symbol, "size": 8},
        hovertemplate=f"{hover}<extra>{name}</extra>",
    )  # fmt: skip


def level(figure: go.Figure, y: float) -> None:
    figure.add_hline(y, line={"color": GREY, "width": 1, "dash": "dot"})


def or_words(figure: go.Figure, words: str = "no measurement gives this figure") -> go.Figure:
    """The figure; if it is empty, with words that say why."""
    shown = (trace.x if trace.orientation == "h" else trace.y for trace in figure.data)
    if all(value is None for values in shown for value in values):
        figure.add_annotation(
            text=words, showarrow=False, font={"color": GREY, "size": 13},
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure


def plane(title: str, x: str, y: str) -> go.Figure:
    """A chart with its title; its legend lies below."""
    name = {"text": title, "font": {"size": 15}, "x": 0, "xanchor": "left"}
    legend = {"orientation": "h", "y": -0.28, "yanchor": "top", "x": 0}
    return canvas(x, y, height=340).update_layout(
        title=name, legend=legend, margin={"t": 44, "l": 8, "r": 48}
    )


def whiskers(below: Iterable[float], above: Iterable[float]) -> dict[str, Any]:
    """Plotly's bars around each figure, from so far below it to so far above it."""
    return {
        "type": "data", "symmetric": False, "color": GREY, "thickness": 1.2, "width": 3,
        "arrayminus": list(below), "array": list(above),
    }  # fmt: skip
