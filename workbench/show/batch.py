"""The figures of a batch run, after those of EMS-SD.

Source:
    Ni et al. 2024 (EMS-SD, arXiv 2405.07542): the figures and tables named below.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from workbench.runs.figures import BatchFigures, label, unsteady
from workbench.show.looks import Look, look, look_of
from workbench.show.plots import canvas, level, line, or_words
from workbench.show.quantities import greedy_disturbed, marked, padding_ratio
from workbench.studies.study import ALONE, SCHEMES

# The scheme that the others are compared with has the first look.
LOOKS = {scheme: look(i) for i, scheme in enumerate([ALONE, *(s for s in SCHEMES if s != ALONE)])}
ROOM = 84  # above a chart, for a legend of six


def speed_up(figures: BatchFigures, decoder: str, decoding: bool = False) -> go.Figure:
    """Figure 1: tokens/s divided by greedy's at the same batch size."""
    figure = canvas("batch size", "times greedy").update_layout(margin_t=ROOM)
    for scheme in figures.schemes(decoder, decoding):
        ratios = {s: figures.times_greedy(decoder, s, scheme, decoding) for s in figures.sizes}
        rows = [figures.row(decoder, size, scheme) for size in figures.sizes]
        doubtful = [row and (unsteady(row) or greedy_disturbed(row)) for row in rows]
        marks = [marked("", not each) for each in doubtful]
        name = SCHEMES[scheme].label
        _line(figure, ratios, name, LOOKS[scheme], "%{text}%{y:.2f}×", marks)
    level(figure, 1)
    return figure


def padding(figures: BatchFigures) -> go.Figure:
    """Figure 5 (c, f): the padding ratio of the vanilla scheme against batch size."""
    figure = canvas("batch size", "padding ratio")
    for decoder in figures.decoders:
        ratios = {size: padding_ratio(figures, decoder, size) for size in figures.sizes}
        _line(figure, ratios, label(decoder), look_of(decoder), "%{y:.0%}")
    return figure.update_yaxes(tickformat=".0%")


class Card(NamedTuple):
    """One figure.

    Attributes:
        title: its title
        says: a sentence about it
        draw: draws it for the chosen decoder, with or without the time in which prompts are read
    """

    title: str
    says: str
    draw: Callable[[BatchFigures, str, bool], go.Figure]


# Cards of the chosen decoder.
OF_ONE = (
    Card(
        "Speed-up over greedy",
        "Tokens/s divided by greedy decoding's in the same kind of batch: above 1 the drafts pay.",
        lambda figures, decoder, decoding: or_words(speed_up(figures, decoder, decoding)),
    ),
)
# Cards of all decoders.
OF_ALL = (
    Card(
        "Padding",
        "Pads divided by the longest acceptance of a round, in the padded scheme.",
        lambda figures, *_: or_words(padding(figures)),
    ),
)
CARDS = OF_ONE + OF_ALL


def _line(
    figure: go.Figure, points: dict[int, float | None], name: str, style: Look, hover: str,
    texts: Sequence[str] = (),
) -> None:  # fmt: skip
    line(figure, points, name, style, "batch %{x}: " + hover)
    figure.data[-1].update(
        text=texts, textposition="top center", textfont_color=style.colour,
        mode="lines+markers+text",
    )  # fmt: skip
    figure.update_xaxes(type="log", tickvals=list(points), ticktext=list(map(str, points)))
    figure.update_yaxes(rangemode="tozero")
