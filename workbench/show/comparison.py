"""Results -> Plotly figures that read on a light and on a dark ground."""

from collections import Counter
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from decoders import Fate
from workbench.runs.store import RoundRecord, RunResult
from workbench.show.quantities import NUMBERS, Number, by_decoder, spread

# Okabe and Ito (2008), with a dash and a symbol each as the second cue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
GREY = "#808691"  # readable on either ground
BY_NAME = {n.name: n for n in NUMBERS}


def figures(results: Sequence[RunResult]) -> list[go.Figure]:
    """All figures of a comparison, in the order of `FIGURES`; energy gives way to memory traffic where no joule was measured."""
    return [draw(results) for draw in FIGURES]


def bars(results: Sequence[RunResult], number: Number) -> go.Figure:
    """One figure of every decoder, with its spread over repeats."""
    groups = by_decoder(results)
    found = [spread(number, group) for group in groups.values()]
    figure = go.Figure(
        go.Bar(
            x=[_label(d) for d in groups], y=[s and s.mean for s in found],
            error_y=_error([s and s.deviation for s in found]),
            text=[number.show(s.mean) if s else "–" for s in found], textposition="outside", cliponaxis=False,
            textfont_size=11, constraintext="none", marker_color=COLOURS[0], marker_line_width=0,
            hovertemplate="%{x}: %{text}<extra></extra>",
        )
    )  # fmt: skip
    top = max((s.mean + (s.deviation or 0) for s in found if s), default=0) or 1
    better = f" <span style='font-size:11px'>({number.better} is better)</span>" if number.better else ""
    figure.update_layout(title=number.label + better)
    figure.update_yaxes(range=[0, 1.2 * top], showticklabels=False, showgrid=False)
    figure.update_xaxes(tickangle=-30)
    return _styled(figure, 260)


def speed(results: Sequence[RunResult]) -> go.Figure:
    return bars(results, BY_NAME["speed"])


def perplexity(results: Sequence[RunResult]) -> go.Figure:
    return bars(results, BY_NAME["perplexity"])


def energy(results: Sequence[RunResult]) -> go.Figure:
    """Joules where any were measured; else the memory traffic, under its own name."""
    measured = any(r.energy.joules is not None for r in results)
    return bars(results, BY_NAME["joules_per_token" if measured else "memory_per_token"])


def block_efficiency(results: Sequence[RunResult]) -> go.Figure:
    return bars(results, BY_NAME["block_efficiency"])


def round_times(results: Sequence[RunResult]) -> go.Figure:
    """Mean milliseconds a round, drafting and verifying; the first round, which also reads the prompt, is left out."""
    groups = by_decoder(results)
    figure = go.Figure()
    parts: list[tuple[str, str, str, Callable[[RoundRecord], float]]] = [
        ("draft", COLOURS[5], "/", lambda r: r.draft_seconds),
        ("verify", COLOURS[0], "", lambda r: r.verify_seconds),
    ]
    for name, colour, pattern, seconds in parts:
        means = [_mean([1e3 * seconds(r) for result in group for r in result.rounds[1:]]) for group in groups.values()]
        figure.add_bar(
            name=name, y=[_label(d) for d in groups], x=means, orientation="h",
            marker={"color": colour, "line_width": 0, "pattern": {"shape": pattern, "fgcolor": "white", "size": 5}},
            hovertemplate="%{y}: %{x:.2f} ms " + name + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", title="Time per round")
    figure.update_xaxes(title="ms, mean of all rounds but the first")
    figure.update_yaxes(autorange="reversed")
    return _styled(figure, 320)


def acceptance_by_position(results: Sequence[RunResult]) -> go.Figure:
    """Of the draft tokens that the rule looked at, the share kept, by their place in the draft (1 is the first)."""
    figure = go.Figure()
    for i, (decoder, group) in enumerate(by_decoder(results).items()):
        tested, kept = Counter[int](), Counter[int]()
        for result in group:
            for round_ in result.rounds:
                for position, fate in draft_positions(round_):
                    tested[position] += fate != Fate.DISCARDED
                    kept[position] += fate == Fate.ACCEPTED
        positions = sorted(p for p in tested if tested[p])
        if positions:
            figure.add_scatter(
                name=_label(decoder), x=positions, y=[kept[p] / tested[p] for p in positions], mode="lines+markers",
                line={"color": _pick(COLOURS, i), "dash": _pick(DASHES, i)}, marker={"symbol": _pick(SYMBOLS, i), "size": 9},
                customdata=[f"{kept[p]} of {tested[p]}" for p in positions],
                hovertemplate="%{customdata} kept at position %{x}<extra>" + _label(decoder) + "</extra>",
            )  # fmt: skip
    figure.update_layout(title="Acceptance by position in the draft")
    if not figure.data:
        figure.add_annotation(text="no decoder of this run drafts", showarrow=False, font={"color": GREY, "size": 13})
    figure.update_xaxes(title="position in the draft", dtick=1)
    figure.update_yaxes(title="kept / looked at", range=[0, 1.05], tickformat=".0%")
    return _styled(figure, 320)


def speed_against_perplexity(results: Sequence[RunResult]) -> go.Figure:
    """Each decoder a point; up and left is faster and likelier."""
    figure = go.Figure()
    widest = fastest = 0.0
    for i, (decoder, group) in enumerate(by_decoder(results).items()):
        fast, likely = spread(BY_NAME["speed"], group), spread(BY_NAME["perplexity"], group)
        if fast and likely:
            widest, fastest = max(widest, likely.mean), max(fastest, fast.mean)
            figure.add_scatter(
                name=_label(decoder), x=[likely.mean], y=[fast.mean], mode="markers+text", text=[_label(decoder)],
                textposition="middle right", cliponaxis=False, showlegend=False,
                marker={"color": _pick(COLOURS, i), "symbol": _pick(SYMBOLS, i), "size": 13},
                error_x=_error([likely.deviation]), error_y=_error([fast.deviation]),
                hovertemplate="perplexity %{x:.2f}, %{y:.0f} tokens/s<extra>" + _label(decoder) + "</extra>",
            )  # fmt: skip
    figure.update_layout(title="Speed against perplexity <span style='font-size:11px'>(↖ up and left is better)</span>")
    figure.update_xaxes(title="perplexity (lower is likelier text)", range=[0, 1.4 * widest or 1])
    figure.update_yaxes(title="tokens/s", range=[0, 1.15 * fastest or 1])
    return _styled(figure, 320)


FIGURES = (speed, perplexity, energy, block_efficiency, speed_against_perplexity, round_times, acceptance_by_position)


def draft_positions(round_: RoundRecord) -> list[tuple[int, Fate]]:
    """(place in the draft from 1, fate) of every draft token of a round, by its depth among the tokens tried."""
    drafted = [t for t in round_.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)]
    depth: dict[int, int] = {}
    for trial in sorted(drafted, key=lambda t: t.node):  # parents have lower ids
        depth[trial.node] = depth.get(trial.parent, 0) + 1
    return [(depth[t.node], Fate(t.fate)) for t in drafted]


def _error(deviations: Sequence[float | None]) -> dict[str, object]:
    """Bars of one standard deviation, where there is any."""
    return {"array": [d or 0 for d in deviations], "visible": any(deviations), "color": GREY, "thickness": 1.2}


def _label(decoder: str) -> str:
    return decoder.replace("_", " ")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _pick(options: Sequence[str], i: int) -> str:
    return options[i % len(options)]


def _styled(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height, margin={"l": 12, "r": 12, "t": 44, "b": 12}, showlegend=len(figure.data) > 1 and height > 300,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12, "family": "ui-sans-serif, system-ui, sans-serif"}, title_font_size=14,
        legend={"orientation": "h", "y": -0.25}, bargap=0.35,
    )  # fmt: skip
    figure.update_xaxes(automargin=True, gridcolor="rgba(128,134,145,0.2)", zerolinecolor="rgba(128,134,145,0.35)")
    figure.update_yaxes(automargin=True, gridcolor="rgba(128,134,145,0.2)", zerolinecolor="rgba(128,134,145,0.35)")
    return figure
