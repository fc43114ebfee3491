"""The figures of a batch run, after those of ems-sd.txt."""

from collections.abc import Callable
from typing import NamedTuple

import plotly.graph_objects as go

from workbench.runs.estimates import BatchFigures, label, number
from workbench.runs.record import Result
from workbench.show.figure import GREY, canvas, level, line, or_words
from workbench.show.looks import Look, look, look_of
from workbench.show.spread import padding_ratio
from workbench.studies.schemes import ALONE, BASELINE, BASELINES, SCHEMES, baseline_scheme

# The scheme that the others are compared with has the first look.
LOOKS = {scheme: look(i) for i, scheme in enumerate([ALONE, *(s for s in SCHEMES if s != ALONE)])}
GREEDY = {ALONE: Look(GREY, "dot", "circle-open"), "dynamic": Look(GREY, "longdash", "square-open")}


def speed(figures: BatchFigures, decoder: str, decoding: bool = False) -> go.Figure:
    """Tokens/s against batch size, a line for each scheme, and those of greedy that they are compared with (tables 2-4)."""
    figure = _of_schemes("batch size", "tokens/s")
    schemes = figures.schemes(decoder, decoding)
    for scheme in schemes:
        points = {size: figures.speed(decoder, size, scheme, decoding) for size in figures.sizes}
        _line(figure, points, SCHEMES[scheme].label, LOOKS[scheme], "%{y:.0f} tokens/s")
    for base in dict.fromkeys(map(baseline_scheme, schemes)):
        points = {size: figures.speed(BASELINE, size, base, decoding) for size in figures.sizes}
        _line(figure, points, BASELINES[base], GREEDY[base], "%{y:.0f} tokens/s")
    return figure


def speed_up(figures: BatchFigures, decoder: str, decoding: bool = False) -> go.Figure:
    """Figure 1: tokens/s over greedy's at the same batch size."""
    figure = _of_schemes("batch size", "times greedy")
    for scheme in figures.schemes(decoder, decoding):
        points = {size: figures.times_greedy(decoder, size, scheme, decoding) for size in figures.sizes}
        _line(figure, points, SCHEMES[scheme].label, LOOKS[scheme], "%{y:.2f}×")
    level(figure, 1)
    return figure


def padding(figures: BatchFigures) -> go.Figure:
    """Figure 5 (c, f): the padding ratio of the vanilla scheme against batch size."""
    return _of_decoders(figures, "padding ratio", padding_ratio, "%{y:.0%}").update_yaxes(tickformat=".0%")


def acceptance(figures: BatchFigures) -> go.Figure:
    """Figure 5 (a, d): how much the samples differ: each one's mean acceptance length is a point."""
    figure = canvas("", "tokens per round, mean of a sample")
    for decoder in figures.decoders:
        figure.add_box(
            y=figures.mean_acceptances(decoder), name=label(decoder), boxpoints="all", jitter=0.5, pointpos=0, width=0.5,
            marker={"color": look_of(decoder).colour, "size": 5, "opacity": 0.6}, line={"color": look_of(decoder).colour, "width": 1.5},
            hovertemplate="%{y:.2f} tokens per round<extra></extra>", showlegend=False,
        )  # fmt: skip
    return figure.update_yaxes(rangemode="tozero")


def least_acceptance(figures: BatchFigures) -> go.Figure:
    """Figure 5 (b, e): the least mean acceptance length in a batch, which a static batch waits for, against batch size."""
    y = "tokens per round, least of a batch"
    return _of_decoders(figures, y, BatchFigures.least_acceptance, "%{y:.2f} tokens per round")


def round_time(figures: BatchFigures, decoder: str) -> go.Figure:
    """After figure 4: what a round of a batch takes against the tokens that it computes, pads included."""
    figure = _of_schemes("tokens computed in a round of the batch", "ms per round")
    groups = [(decoder, s, SCHEMES[s].label, LOOKS[s]) for s in figures.schemes(decoder, decoding=True)]
    for name, scheme, title, style in [*groups, (BASELINE, ALONE, BASELINES[ALONE], GREEDY[ALONE])]:
        results = [r for row in figures.rows if (row.decoder, row.scheme) == (name, scheme) for r in row.results]
        points = [(r.batch_size, point) for r in results if (point := _round(r)) is not None]
        figure.add_scatter(
            x=[tokens for _, (tokens, _) in points], y=[ms for _, (_, ms) in points], customdata=[size for size, _ in points],
            name=title, mode="markers", marker={"color": style.colour, "symbol": style.symbol, "size": 9},
            hovertemplate="batch %{customdata}: %{x:.0f} tokens, %{y:.1f} ms<extra>" + title + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return figure


class Card(NamedTuple):
    """One figure: what it says, and how it is drawn for the decoder chosen, with the reading of prompts or without."""

    title: str
    says: str
    draw: Callable[[BatchFigures, str, bool], go.Figure]


OF_ONE = (  # of the decoder chosen
    Card(
        "Speed-up over greedy", "Tokens/s over greedy decoding's in the same kind of batch: above 1 the drafts pay.",
        lambda figures, decoder, decoding: or_words(speed_up(figures, decoder, decoding)),
    ),
    Card(
        "Speed", "New tokens over seconds, all requests of a batch together.",
        lambda figures, decoder, decoding: or_words(speed(figures, decoder, decoding)),
    ),
    Card(
        "Time per round", "Pads are computed too, so a round takes longer the more tokens it has. The reading of prompts is left out.",
        lambda figures, decoder, _: or_words(round_time(figures, decoder)),
    ),
)  # fmt: skip
OF_ALL = (  # of all decoders
    Card(
        "Padding", "Pads over the longest acceptance of a round, in the padded scheme.",
        lambda figures, *_: or_words(padding(figures)),
    ),
    Card(
        "Acceptance", "Each point is a sample: the tokens that it gains per round. A wide spread is what padding fills up.",
        lambda figures, *_: or_words(acceptance(figures)),
    ),
    Card(
        "The slowest of a batch", "A static batch waits for the sample that accepts least.",
        lambda figures, *_: or_words(least_acceptance(figures)),
    ),
)  # fmt: skip
CARDS = OF_ONE + OF_ALL


def _round(result: Result) -> tuple[float, float] | None:
    """Tokens computed and milliseconds of one round, mean; None if the reading of prompts cannot be left out."""
    passes, seconds, fed, padded = (
        number(result, n) for n in ("passes", "decode_seconds", "fed_tokens", "padded_tokens")
    )
    if not passes or seconds is None or fed is None:
        return None
    return (fed + (padded or 0)) / passes, 1e3 * seconds / passes


def _of_decoders(figures: BatchFigures, y: str, value: Callable[..., float | None], hover: str) -> go.Figure:
    """`value(figures, decoder, size)` against batch size, a line for each decoder."""
    figure = canvas("batch size", y)
    for decoder in figures.decoders:
        _line(
            figure,
            {size: value(figures, decoder, size) for size in figures.sizes},
            label(decoder),
            look_of(decoder),
            hover,
        )
    return figure


def _of_schemes(x: str, y: str) -> go.Figure:
    figure = canvas(x, y).update_yaxes(rangemode="tozero")
    return figure.update_layout(margin_t=84)  # room for a legend of six


def _line(figure: go.Figure, points: dict[int, float | None], name: str, style: Look, hover: str) -> None:
    line(figure, points, name, style, "batch %{x}: " + hover)
    figure.update_xaxes(type="log", tickvals=list(points), ticktext=list(map(str, points)))
    figure.update_yaxes(rangemode="tozero")
