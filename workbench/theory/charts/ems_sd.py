"""The figures of the padding of batches.

Source:
    Ni et al. 2024 (EMS-SD, arXiv 2405.07542), appendix B.
"""

from functools import cache
from itertools import cycle

import numpy as np
import plotly.graph_objects as go

from decoders import theory
from workbench.show.figure import canvas
from workbench.theory.curves import HERE, NOW, UNIT, diamond, disc, family
from workbench.theory.estimates import NOTHING, Measured

ROUNDS = 4000  # simulated batches per point
ACCURACIES = [i / 10 for i in range(1, 10)]  # the points
PADDING = {
    "longest": "longest acceptance τ<sub>max</sub>",
    "pads": "pads per request δ̄",
    "ratio": "padding ratio r̄",
}


def padding_figure(
    part: str, p: float, batch: int, cap: int, found: Measured = NOTHING
) -> go.Figure:
    """Figure 6: one part of `theory.Padding` against p.

    Lines are exact, crosses the paper's simulation for this batch size.
    """

    def exact(batch: float, p: float) -> float:
        return getattr(theory.expected_padding(p, int(batch), cap), part)

    figure = canvas("next-token accuracy p", PADDING[part])
    family(figure, UNIT, "b", (2, 4, 8, 16, 32), batch, exact)
    figure.add_scatter(
        x=ACCURACIES, y=[getattr(padding, part) for padding in _simulated(batch, cap)],
        name="simulated", mode="markers", marker={"symbol": "x-thin-open", "size": 8, "color": NOW},
        hovertemplate=f"%{{x:.2f}}: %{{y:.3f}}<extra>{ROUNDS} simulated rounds</extra>",
    )  # fmt: skip
    disc(figure, p, exact(batch, p), "{:.2f}")
    for each in found.batches:
        if (measured := each.padding(batch)) is not None:
            diamond(figure, each.p, getattr(measured, part), f"{{:.2f}} measured, {each.decoder}")
    if run := found.speculative:
        diamond(figure, run.alpha, exact(batch, run.alpha), "{:.2f} for the run’s α")
    return figure


@cache
def _simulated(batch: int, cap: int) -> list[theory.Padding]:
    draw = np.random.default_rng(0)
    return [theory.simulated_padding(p, batch, cap, ROUNDS, draw) for p in ACCURACIES]


def longest_figure(p: float, batch: int, cap: int, found: Measured = NOTHING) -> go.Figure:
    """P(tau_max = k), with the rest of the mass on the cap.

    Measured bars are the shares of rounds of the run's batches of this size.
    """
    figure = canvas("longest acceptance of the batch, k", "probability")
    names = [*(str(k) for k in range(1, cap)), f"≥ {cap}"]
    figure.add_bar(
        x=names, y=theory.longest_acceptance(p, batch, cap), name="formula", marker_color=NOW,
        hovertemplate="k = %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    for run, pattern in zip(found.batches, cycle(("", "/", "x", "."))):
        if (shares := run.longest(batch, cap)) is not None:
            figure.add_bar(
                x=names, y=shares, name=f"measured, {run.decoder}",
                marker={"color": HERE, "pattern_shape": pattern},
                hovertemplate="k = %{x}: %{y:.3f} of the rounds<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(type="category")
    return figure
