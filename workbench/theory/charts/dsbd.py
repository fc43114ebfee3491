"""The figures of dynamic-width speculative beam decoding.

Source:
    Qin et al. 2024 (DSBD, arXiv 2409.16560): the theorem and the equations named below.
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from decoders import theory
from workbench.show.figure import canvas, level
from workbench.theory.curves import FAMILY, HERE, UNIT, diamond, disc, family, upright
from workbench.theory.estimates import MeasuredDSBD


def steps_figure(
    beta: float, threshold: float, gamma: int, run: MeasuredDSBD | None = None
) -> go.Figure:
    """Theorem 3.2: layers per round against beta, flat beyond t."""
    figure = canvas(
        "chance β that W<sub>min</sub> beams are accepted", "layers per round, at least"
    )
    family(
        figure, UNIT, "γ", (1, 2, 3, 4, 8), gamma, lambda g, b: theory.dsbd_steps(b, g, threshold)
    )
    upright(figure, threshold, "t")
    disc(figure, beta, theory.dsbd_steps(beta, gamma, threshold), "{:.2f}")
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
