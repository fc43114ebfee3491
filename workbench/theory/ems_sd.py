"""The page of the padding of batches.

Source:
    Ni et al. 2024 (EMS-SD, arXiv 2405.07542), appendix B.
"""

from itertools import cycle

import plotly.graph_objects as go

from decoders import theory
from workbench.show.plots import canvas
from workbench.theory.estimates import NOTHING, MeasuredBatch, Measurements
from workbench.theory.page import (
    HERE,
    NOW,
    UNIT,
    FigureCard,
    Page,
    Slider,
    Values,
    diamond,
    disc,
    family,
)  # fmt: skip

PADDING = {
    "longest": "longest acceptance τ<sub>max</sub>",
    "pads": "pads per request δ̄",
    "ratio": "padding ratio r̄",
}


def padding_figure(
    part: str, p: float, batch: int, cap: int, m: Measurements = NOTHING
) -> go.Figure:
    """Figure 6: one part of `theory.Padding` against p."""

    def exact(batch: float, p: float) -> float:
        return getattr(theory.expected_padding(p, int(batch), cap), part)

    figure = canvas("next-token accuracy p", PADDING[part])
    family(figure, UNIT, "b", (2, 4, 8, 16, 32), batch, exact)
    disc(figure, p, exact(batch, p), "{:.2f}")
    for each in m.batches:
        if (measured := each.padding(batch)) is not None:
            diamond(figure, each.p, getattr(measured, part), f"{{:.2f}} measured, {each.decoder}")
    if run := m.speculative:
        diamond(figure, run.alpha, exact(batch, run.alpha), "{:.2f} for the run’s α")
    return figure


def longest_figure(p: float, batch: int, cap: int, m: Measurements = NOTHING) -> go.Figure:
    """P(tau_max = k), with the rest of the mass on the cap.

    Measured bars are the shares of rounds of the run's batches of this size.
    """
    figure = canvas("longest acceptance of the batch, k", "probability")
    names = [*(str(k) for k in range(1, cap)), f"≥ {cap}"]
    figure.add_bar(
        x=names, y=theory.longest_acceptance(p, batch, cap), name="formula", marker_color=NOW,
        hovertemplate="k = %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    for run, pattern in zip(m.batches, cycle(("", "/", "x", "."))):
        if (shares := run.longest(batch, cap)) is not None:
            figure.add_bar(
                x=names, y=shares, name=f"measured, {run.decoder}",
                marker={"color": HERE, "pattern_shape": pattern},
                hovertemplate="k = %{x}: %{y:.3f} of the rounds<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(type="category")
    return figure


def now(v: Values) -> str:
    padding = theory.expected_padding(v.p, v.batch, v.cap)
    return (
        f"The longest of {v.batch} gains **{padding.longest:.2f}** tokens per round · a request is"
        f" padded by **{padding.pads:.2f}** on average · **{padding.ratio:.0%}** of a padded batch"
        " is padding, and none of a packed one"
    )


def of_run(m: Measurements) -> str:
    if m.batches:
        return "\n\n".join(map(_of_batch, m.batches))
    if m.speculative is None:
        return "This run has neither batches nor rounds of speculative decoding."
    return (
        f"Speculative decoding kept α = {m.speculative.alpha:.2f} of the draft tokens that it"
        " tested: the diamonds show the formula’s cost of padding for a batch of such requests. A"
        " run of the Batch tab measures padding itself."
    )


def _of_batch(run: MeasuredBatch) -> str:
    """The differences between samples."""
    return (
        f"{run.decoder} gained {run.mean:.2f} tokens per round, mean of {len(run.means)} samples"
        f" whose means differ by {run.deviation:.2f} (standard deviation); all acceptance lengths"
        f" together give p = {run.p:.2f}, and the longest was {run.cap}. The formula takes all"
        " requests to be alike: it leaves out that some stay slow and others stay fast."
    )


EMS_SD = Page(
    "EMS-SD",
    "Ni et al. 2024, appendix B",
    (
        Slider("p", "accuracy p", "chance that the next draft token is right", 0.0, 1.0, 0.7),
        Slider("batch", "batch size b", "requests decoded at once", 1, 32, 8, 1),
        Slider("cap", "cap", "longest acceptance possible", 1, 16, 8, 1),
    ),
    (
        FigureCard(
            "Longest acceptance",
            r"\tau_{max} = \max(\tau_0,\dots,\tau_{b-1})",
            "The request that gains most sets the length to which all others are padded. Figure 6.",
            lambda v, m: padding_figure("longest", v.p, v.batch, v.cap, m),
        ),
        FigureCard(
            "Its distribution",
            r"P(\tau_{max}=k) = (1-p^k)^b-(1-p^{k-1})^b",
            "In a large batch some request nearly always gains all. The last bar has the rest of "
            "the mass. Equation 11.",
            lambda v, m: longest_figure(v.p, v.batch, v.cap, m),
        ),
        FigureCard(
            "Pads",
            r"\bar\delta = \tau_{max}-\frac1b\sum_i\tau_i",
            "Tokens computed and cached for nothing, per request and round. Figure 6.",
            lambda v, m: padding_figure("pads", v.p, v.batch, v.cap, m),
        ),
        FigureCard(
            "Padding ratio",
            r"\bar r = \bar\delta\,/\,\tau_{max}",
            "The share of a padded batch that is padding. Batches here can be packed without any. "
            "Figure 6.",
            lambda v, m: padding_figure("ratio", v.p, v.batch, v.cap, m),
        ),
    ),
    now,
    of_run,
)
