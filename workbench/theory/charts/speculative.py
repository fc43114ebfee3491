"""The figures of speculative decoding.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192): the theorems, figures and tables named below.
"""

import plotly.graph_objects as go

from decoders import theory
from workbench.show.figure import GREY, canvas, level
from workbench.theory.curves import FAMILY, UNIT, diamond, disc, family
from workbench.theory.estimates import MeasuredSpeculative
from workbench.theory.papers import TABLE_4

GAMMAS = (1, 2, 4, 8, 16)
LONGEST = 32  # the largest gamma among which the best is searched


def tokens_figure(alpha: float, gamma: int, run: MeasuredSpeculative | None = None) -> go.Figure:
    """Figure 2 of the paper: expected tokens per round against alpha."""
    figure = canvas("acceptance α", "tokens per round")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.expected_tokens(a, g))
    disc(figure, alpha, theory.expected_tokens(alpha, gamma), "{:.2f}")
    if run:
        diamond(figure, run.alpha, run.tokens, "{:.2f} measured")
    return figure


def speedup_figure(
    alpha: float, gamma: int, c: float, run: MeasuredSpeculative | None = None
) -> go.Figure:
    """Figure 4, speed: the wall-time factor of theorem 3.8 against alpha."""
    figure = canvas("acceptance α", "speed-up")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.walltime_factor(a, g, c))
    level(figure, 1)
    disc(figure, alpha, theory.walltime_factor(alpha, gamma, c), "{:.2f}×")
    if run and run.speedup is not None:
        diamond(figure, run.alpha, run.speedup, "{:.2f}× measured")
    return figure


def best_gamma_figure(alpha: float, c: float, run: MeasuredSpeculative | None = None) -> go.Figure:
    """Figure 3: the gamma of the largest wall-time factor against alpha."""
    figure = canvas("acceptance α", "best γ")
    costs = (0.01, 0.02, 0.05, 0.1, 0.2)
    family(
        figure, UNIT, "c", costs, c, lambda cost, a: theory.best_gamma(a, cost, LONGEST), shape="hv"
    )
    disc(figure, alpha, theory.best_gamma(alpha, c, LONGEST), "γ = {}")
    if run and run.c is not None:
        diamond(
            figure,
            run.alpha,
            theory.best_gamma(run.alpha, run.c, LONGEST),
            "γ = {} for the run’s c",
        )
    return figure


def operations_figure(alpha: float, gamma: int, c_hat: float) -> go.Figure:
    """Figure 4, operations: the factor of theorem 3.11 against alpha."""
    figure = canvas("acceptance α", "operations")
    family(figure, UNIT, "γ", GAMMAS, gamma, lambda g, a: theory.operations_factor(a, g, c_hat))
    disc(figure, alpha, theory.operations_factor(alpha, gamma, c_hat), "{:.2f}×")
    return figure


def table_4_figure(run: MeasuredSpeculative | None = None) -> go.Figure:
    """Table 4: the speed-up that theorem 3.8 expects against the measured one.

    Its points are the paper's runs and the run here; the line is agreement.
    """
    figure = canvas("expected speed-up", "measured speed-up")
    figure.add_scatter(
        x=[0, 4], y=[0, 4], mode="lines", line={"color": GREY, "width": 1, "dash": "dot"},
        hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    for (task, symbol), (colour, _) in zip(
        (("EnDe", "circle"), ("CNNDM", "square")), FAMILY[::4], strict=True
    ):
        rows = [r for r in TABLE_4 if r.task == task]
        figure.add_scatter(
            x=[theory.walltime_factor(r.alpha, r.gamma, r.c) for r in rows],
            y=[r.empirical for r in rows], name=f"{task}, T5-XXL", mode="markers",
            marker={"symbol": f"{symbol}-open", "size": 9, "color": colour, "line_width": 2},
            customdata=[
                f"{r.draft}, T = {r.temperature}, γ = {r.gamma}, α = {r.alpha}, c = {r.c}"
                for r in rows
            ],
            hovertemplate="%{customdata}<br>expected %{x:.2f}, measured %{y:.1f}<extra></extra>",
        )  # fmt: skip
    if run and run.speedup is not None and run.expected_speedup is not None:
        diamond(figure, run.expected_speedup, run.speedup, "{:.2f}× here")
    return figure
