"""The page of dynamic-width speculative beam decoding.

Source:
    Qin et al. 2024 (DSBD, arXiv 2409.16560): the theorem and the equations named below.
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import canvas, level
from workbench.theory.estimates import MeasuredDSBD, Measurements
from workbench.theory.page import (
    FAMILY,
    HERE,
    UNIT,
    FigureCard,
    Page,
    Slider,
    Values,
    diamond,
    disc,
    family,
    upright,
)  # fmt: skip


def steps_figure(
    beta: float, threshold: float, gamma: int, run: MeasuredDSBD | None = None
) -> go.Figure:
    """Theorem 3.2: layers per round against beta, flat beyond t."""
    figure = family(
        canvas("chance β that W<sub>min</sub> beams are accepted", "layers per round, at least"),
        UNIT, "γ", (1, 2, 3, 4, 8), gamma, lambda g, b: theory.dsbd_steps(b, g, threshold),
        (beta, "{:.2f}"),
    )  # fmt: skip
    upright(figure, threshold, "t")
    if run:
        diamond(figure, run.layer_acceptance, run.steps, "{:.2f} measured")
    return figure


def width_figure(
    alphas: Sequence[float], threshold: float, minimum: int, run: MeasuredDSBD | None = None
) -> go.Figure:
    """P(m, k), the chance that at least k are accepted, and the width by t (equations 2-7)."""
    law = theory.accepted_distribution(list(alphas))
    at_least = [sum(law[k:]) for k in range(len(law))]
    width = theory.dynamic_width(list(alphas), threshold, minimum)
    figure = canvas("draws of a layer that are accepted, k", "probability")
    ks = list(range(len(law)))
    figure.add_bar(
        x=ks, y=law, name="exactly k", marker_color=FAMILY[0][0],
        hovertemplate="P(%{x}) = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=ks, y=at_least, name="at least k", line={"color": FAMILY[-1][0]},
        hovertemplate="P(≥ %{x}) = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    level(figure, threshold, "t")
    disc(figure, width, at_least[width] if width in ks else 0.0, f"width {width}")
    if run:
        upright(figure, run.width, f"{run.width:.2f} measured, mean", HERE)
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(range=[0, 1.2], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1])
    return figure


def _alphas(v: Values) -> list[float]:
    return [v.first * v.falls**j for j in range(v.draws)]


def now(v: Values) -> str:
    return (
        f"At least **{theory.dsbd_steps(v.beta, v.gamma, v.t):.2f}** layers per round ·"
        f" width **{theory.dynamic_width(_alphas(v), v.t, v.minimum)}** for"
        f" α = {', '.join(f'{a:.2f}' for a in _alphas(v))}"
    )


def of_run(m: Measurements) -> str:
    run = m.dsbd
    if run is None:
        return "This run has no rounds of DSBD."
    return (
        f"DSBD passed {run.passed} of the {run.verified} layers it verified"
        f" ({run.layer_acceptance:.2f}, an estimate of the mean of min(t, β)), gained"
        f" {run.steps:.2f} layers per round with γ = {run.gamma:.2f} on average, and kept"
        f" {run.width:.2f} beams per layer. The theorem is a lower bound for a constant β, or for"
        " the minimum of β: compared with its mean, a run may lie on either side."
    )


DSBD = Page(
    "DSBD",
    "Qin et al. 2024, Dynamic-width speculative beam decoding, §3.2",
    (
        Slider("beta", "yield β", "chance that a layer’s draws yield W_min beams", 0.0, 1.0, 0.8),
        Slider("t", "threshold t", "desired chance that a layer passes", 0.0, 1.0, 0.9),
        Slider("gamma", "draft length γ", "layers drafted per round", 1, 16, 2, 1),
        Slider("draws", "draft beams W_S", "draws of the draft model per layer", 1, 16, 6, 1),
        Slider(
            "first", "first acceptance α₁", "chance that the first draw is accepted", 0.0, 1.0, 0.75
        ),
        Slider("falls", "fall", "each refusal multiplies the chance by this", 0.0, 1.0, 0.7),
        Slider("minimum", "least beams W_min", "fewest beams of a layer", 1, 16, 1, 1),
    ),
    (
        FigureCard(
            "Layers per round",
            r"E(\text{layers}) \ge \frac{1-\min(t,\beta)^{\gamma+1}}{1-\min(t,\beta)}",
            "The width is chosen so that a layer passes with a chance of about t, if β allows it. "
            "A lower bound. Theorem 3.2.",
            lambda v, m: steps_figure(v.beta, v.t, v.gamma, m.dsbd),
        ),
        FigureCard(
            "Width",
            r"\begin{gathered} P(m,k)=\sum_{i=1}^{m} \alpha_i \prod_{j<i}(1-\alpha_j)\, P(m-i,k-1)"
            r" \\ W_L=\max\bigl(W_{min},\,\max\{K: P(\ge K)\ge t\}\bigr) \end{gathered}",
            "The most beams that are accepted with a chance of at least t; after an acceptance the "
            "α start again with the first. Equations 2-7.",
            lambda v, m: width_figure(_alphas(v), v.t, v.minimum, m.dsbd),
        ),
    ),
    now,
    of_run,
)
