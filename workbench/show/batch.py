"""A batch experiment as Plotly figures, after the figures of ems-sd.txt."""

from collections.abc import Callable, Iterable

import plotly.graph_objects as go

from workbench.show.comparison import COLOURS, DASHES, GREY, SYMBOLS
from workbench.studies.batch_records import BASELINE, WAYS, BatchRun, baseline_way
from workbench.theory.curves import canvas, level

LOOKS = dict(zip(WAYS, zip(COLOURS[1:], DASHES[1:], SYMBOLS[1:], strict=True), strict=False)) | {
    "unpadded": (COLOURS[0], DASHES[0], SYMBOLS[0])  # the one that the others are held against
}
Values = Callable[[int], float | None]  # batch size -> a figure


def speed(run: BatchRun, decoder: str, decoding: bool = False) -> go.Figure:
    """Tokens/s against batch size, each way a line, and greedy's (tables 2-4)."""
    figure = _of_ways("batch size", "tokens/s")
    for way in run.ways(decoder, decoding):
        _ways_line(figure, run, way, lambda size, way=way: run.speed(decoder, size, way, decoding), "%{y:.0f} tokens/s")
    base = baseline_way(next(iter(run.ways(decoder, decoding)), "unpadded"))
    greedy = [run.speed(BASELINE, size, base, decoding) for size in run.sizes]
    _line(figure, run, "greedy", greedy, (GREY, "dot", "circle-open"), "%{y:.0f} tokens/s")
    figure.update_yaxes(rangemode="tozero")
    return figure


def speed_up(run: BatchRun, decoder: str, decoding: bool = False) -> go.Figure:
    """Figure 1: tokens/s over greedy's at the same batch size."""
    figure = _of_ways("batch size", "times greedy")
    for way in run.ways(decoder, decoding):
        _ways_line(figure, run, way, lambda size, way=way: run.speed_up(decoder, size, way, decoding), "%{y:.2f}×")
    level(figure, 1)
    figure.update_yaxes(rangemode="tozero")
    return figure


def padding(run: BatchRun) -> go.Figure:
    """Figure 5 (c, f): the padding ratio of the vanilla way against batch size."""
    figure = canvas("batch size", "padding ratio")
    for i, decoder in enumerate(run.decoders):
        ratios = [_mean(c.padding_ratio for c in run.find(decoder, size, "vanilla")) for size in run.sizes]
        _line(figure, run, _label(decoder), ratios, _look(i), "%{y:.0%}")
    figure.update_yaxes(rangemode="tozero", tickformat=".0%")
    return figure


def acceptance(run: BatchRun) -> go.Figure:
    """Figure 5 (a, d): how much the samples differ: each one's mean acceptance length is a point."""
    figure = canvas("", "tokens a round, mean of a sample")
    for i, decoder in enumerate(run.decoders):
        figure.add_box(
            y=run.mean_acceptances(decoder), name=_label(decoder), boxpoints="all", jitter=0.5, pointpos=0, width=0.5,
            marker={"color": _look(i)[0], "size": 5, "opacity": 0.6}, line={"color": _look(i)[0], "width": 1.5},
            hovertemplate="%{y:.2f} tokens a round<extra></extra>", showlegend=False,
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


def least_acceptance(run: BatchRun) -> go.Figure:
    """Figure 5 (b, e): the least mean acceptance length in a batch, which a static batch waits for, against batch size."""
    figure = canvas("batch size", "tokens a round, least of a batch")
    for i, decoder in enumerate(run.decoders):
        least = [run.least_acceptance(decoder, size) for size in run.sizes]
        _line(figure, run, _label(decoder), least, _look(i), "%{y:.2f} tokens a round")
    figure.update_yaxes(rangemode="tozero")
    return figure


def round_time(run: BatchRun, decoder: str) -> go.Figure:
    """After figure 4: what a round of a batch takes against the tokens that it computes, pads included."""
    figure = _of_ways("tokens computed in a round of the batch", "ms a round")
    groups = [(decoder, way, WAYS[way].label, LOOKS[way]) for way in run.ways(decoder, decoding=True)]
    for name, way, label, (colour, _, symbol) in [*groups, (BASELINE, "unpadded", "greedy", (GREY, "", "circle-open"))]:
        cells = [c for c in run.cells if (c.decoder, c.way) == (name, way) and c.passes]
        figure.add_scatter(
            x=[(c.fed_tokens + c.padded_tokens) / c.passes for c in cells], y=[1e3 * c.decode_seconds / c.passes for c in cells],
            name=label, mode="markers", marker={"color": colour, "symbol": symbol, "size": 9},
            customdata=[c.batch_size for c in cells],
            hovertemplate="batch %{customdata}: %{x:.0f} tokens, %{y:.1f} ms<extra>" + label + "</extra>",
        )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def or_told(figure: go.Figure) -> go.Figure:
    """The figure; one that nothing chosen gives a point says so."""
    if all(y is None for trace in figure.data for y in trace.y):
        figure.add_annotation(
            text="nothing measured gives this figure", showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5
        )
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure


def _of_ways(x: str, y: str) -> go.Figure:
    figure = canvas(x, y)
    figure.update_layout(margin_t=84)  # room for a legend of six
    return figure


def _ways_line(figure: go.Figure, run: BatchRun, way: str, value: Values, hover: str) -> None:
    _line(figure, run, WAYS[way].label, [value(size) for size in run.sizes], LOOKS[way], hover)


def _line(
    figure: go.Figure, run: BatchRun, name: str, values: list[float | None], look: tuple[str, str, str], hover: str
) -> None:
    colour, dash, symbol = look
    figure.add_scatter(
        x=run.sizes, y=values, name=name, mode="lines+markers", connectgaps=True, line={"color": colour, "dash": dash, "width": 2},
        marker={"symbol": symbol, "size": 8}, hovertemplate="batch %{x}: " + hover + f"<extra>{name}</extra>",
    )  # fmt: skip
    figure.update_xaxes(type="log", tickvals=run.sizes, ticktext=list(map(str, run.sizes)))


def _look(i: int) -> tuple[str, str, str]:
    return tuple(options[i % len(options)] for options in (COLOURS, DASHES, SYMBOLS))


def _label(decoder: str) -> str:
    return decoder.replace("_", " ")


def _mean(values: Iterable[float | None]) -> float | None:
    found = [v for v in values if v is not None]
    return sum(found) / len(found) if found else None
