"""Parts that Plotly's figures share: the canvas, and lines that are readable on either ground."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from workbench.show.looks import Look

GREY = "#808691"  # readable on either ground


def canvas(x: str = "", y: str = "", *, title: str = "", height: int = 330) -> go.Figure:
    """An empty figure with named axes; a legend stands above it."""
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
            "title": {"text": title, "font": {"size": 14}} if title else None,
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


def level(figure: go.Figure, y: float, text: str = "") -> None:
    """A dotted line across."""
    figure.add_hline(y, line={"color": GREY, "width": 1, "dash": "dot"}, annotation={"text": text})


def _values(trace: Any) -> Sequence[Any]:
    """The figures of a line, or of bars, which may lie."""
    return trace.x if getattr(trace, "orientation", None) == "h" else trace.y


def or_words(figure: go.Figure, words: str = "no measurement gives this figure") -> go.Figure:
    """The figure; if it is empty, with words that say why."""
    if all(value is None for trace in figure.data for value in _values(trace)):
        figure.add_annotation(
            text=words, showarrow=False, font={"color": GREY, "size": 13},
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure
