"""The padding of batches (ems-sd.txt appendix B)."""

from decoders import theory
from workbench.theory import charts as charts
from workbench.theory.estimates import Measured
from workbench.theory.pages.page import Card, Page, Slider, Values


def now(v: Values) -> str:
    padding = theory.expected_padding(v.p, v.batch, v.cap)
    return (
        f"The longest of {v.batch} gains **{padding.longest:.2f}** tokens a round · a request is padded by **{padding.pads:.2f}** on average"
        f" · **{padding.ratio:.0%}** of a padded batch is padding; without padding, 0"
    )


def found(m: Measured) -> str:
    if m.speculative is None:
        return "Speculative decoding did not run."
    return (
        f"Speculative decoding kept α = {m.speculative.alpha:.2f} of the draft tokens it looked at: the diamonds show what padding a batch"
        " of such requests would cost by the formula. Padding itself is measured in the Batch tab."
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
        Card(
            "Longest acceptance", r"\tau_{max} = \max(\tau_0,\dots,\tau_{b-1})",
            "The request that gains most sets the length to which all others are padded. Figure 6; crosses are simulated as in the paper.",
            lambda v, m: charts.padding_figure("longest", v.p, v.batch, v.cap, m.speculative),
        ),
        Card(
            "Its distribution", r"P(\tau_{max}=k) = (1-p^k)^b-(1-p^{k-1})^b",
            "With large batches somebody nearly always gains all. The rest of the mass sits on the last bar. Equation 11.",
            lambda v, m: charts.longest_figure(v.p, v.batch, v.cap),
        ),
        Card(
            "Pads", r"\bar\delta = \tau_{max}-\frac1b\sum_i\tau_i",
            "Tokens computed and cached for nothing, per request and round. Figure 6.",
            lambda v, m: charts.padding_figure("pads", v.p, v.batch, v.cap, m.speculative),
        ),
        Card(
            "Padding ratio", r"\bar r = \bar\delta\,/\,\tau_{max}",
            "The share of a padded batch that is padding. Here batches are packed without any. Figure 6.",
            lambda v, m: charts.padding_figure("ratio", v.p, v.batch, v.cap, m.speculative),
        ),
    ),
    now, found,
)  # fmt: skip
