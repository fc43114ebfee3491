"""The padding of batches.

Source:
    Ni et al. 2024 (EMS-SD, arXiv 2405.07542), appendix B.
"""

from decoders import theory
from workbench.show.tables import Table, markdown
from workbench.theory.batches import MeasuredBatch
from workbench.theory.charts import ems_sd as charts
from workbench.theory.estimates import Measured
from workbench.theory.pages.page import Card, Page, Slider, Values


def now(v: Values) -> str:
    padding = theory.expected_padding(v.p, v.batch, v.cap)
    return (
        f"The longest of {v.batch} gains **{padding.longest:.2f}** tokens per round · a request is"
        f" padded by **{padding.pads:.2f}** on average · **{padding.ratio:.0%}** of a padded batch"
        " is padding, and none of a packed one"
    )


def found(m: Measured) -> str:
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
    """The differences between samples, and for each batch size the formula next to measurements."""
    words = (
        f"{run.decoder} gained {run.mean:.2f} tokens per round, mean of {len(run.means)} samples"
        f" whose means differ by {run.deviation:.2f} (standard deviation); all acceptance lengths"
        f" together give p = {run.p:.2f}, and the longest was {run.cap}. The formula takes all"
        " requests to be alike: it leaves out that some stay slow and others stay fast."
    )
    rows = [_row(run, size) for size in run.gained if size > 1]
    heads = [
        "batch size", "τ_max, formula", "measured", "pads, formula", "measured", "ratio, formula",
        "measured", "vanilla scheme",
    ]  # fmt: skip
    return f"{words}\n\n{markdown(Table(heads, rows))}" if rows else words


def _row(run: MeasuredBatch, size: int) -> list[str]:
    formula, measured, vanilla = (
        theory.expected_padding(run.p, size, run.cap),
        run.padding(size),
        run.ratios.get(size),
    )
    assert measured is not None  # this size was run
    return [
        str(size),
        *(
            f"{value:.2f}"
            for value in (formula.longest, measured.longest, formula.pads, measured.pads)
        ),
        *(f"{value:.0%}" for value in (formula.ratio, measured.ratio)),
        "not measured" if vanilla is None else f"{vanilla:.0%}",
    ]


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
            "Longest acceptance",
            r"\tau_{max} = \max(\tau_0,\dots,\tau_{b-1})",
            "The request that gains most sets the length to which all others are padded. Figure 6; "
            "crosses are simulated as in the paper.",
            lambda v, m: charts.padding_figure("longest", v.p, v.batch, v.cap, m),
        ),
        Card(
            "Its distribution",
            r"P(\tau_{max}=k) = (1-p^k)^b-(1-p^{k-1})^b",
            "In a large batch some request nearly always gains all. The last bar has the rest of "
            "the mass. Equation 11.",
            lambda v, m: charts.longest_figure(v.p, v.batch, v.cap, m),
        ),
        Card(
            "Pads",
            r"\bar\delta = \tau_{max}-\frac1b\sum_i\tau_i",
            "Tokens computed and cached for nothing, per request and round. Figure 6.",
            lambda v, m: charts.padding_figure("pads", v.p, v.batch, v.cap, m),
        ),
        Card(
            "Padding ratio",
            r"\bar r = \bar\delta\,/\,\tau_{max}",
            "The share of a padded batch that is padding. Batches here can be packed without any. "
            "Figure 6.",
            lambda v, m: charts.padding_figure("ratio", v.p, v.batch, v.cap, m),
        ),
    ),
    now,
    found,
)
