"""The pages of theory: statements about a run, figures, exact small trees."""

import re
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from decoders.theory import expected_tokens, walltime_factor
from workbench.theory import PAGES, papers
from workbench.theory.estimates import MeasuredDSBD, MeasuredMTAD, MeasuredSpeculative, Measurements


def values(page, **changes):
    return SimpleNamespace(**{s.name: s.value for s in page.fields} | changes)


@given(
    st.integers(1, 99), st.floats(0.5, 12), st.floats(0.01, 0.5), st.floats(0.5, 2),
    st.sampled_from([True, False]),
)  # fmt: skip
def test_what_the_formulas_give_follows_from_what_was_measured_as_it_is_shown(
    accepted, gamma, c, verify, timed
):
    """alpha = 0.83 and gamma = 4.1 stood beside an expectation of unrounded ones."""
    costs = (c, verify, 1.4) if timed else (None, None, None)
    found = Measurements(MeasuredSpeculative(accepted, 99, gamma, 2.3, *costs))
    words = PAGES[0].of_run(found)
    alpha, shown, tokens = re.search(
        r"α = (\S+), .* γ = (\S+) on average \(expected (\S+)\)", words
    ).groups()
    assert tokens == f"{expected_tokens(float(alpha), float(shown)):.2f}"
    if timed:
        each, faster, took, then = re.search(
            r"c = (\S+) of .* expects (\S+)×, .* took (\S+) passes, .* is (\S+)×", words
        ).groups()
        assert faster == f"{walltime_factor(float(alpha), float(shown), float(each)):.2f}"
        cost = float(shown) * float(each) + float(took)
        assert then == f"{expected_tokens(float(alpha), float(shown)) / cost:.2f}"


def test_what_disturbed_timings_gave_is_marked():
    """Expected and measured values of a disturbed run stood there as if they were certain."""
    run = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4, sure=False)
    words = PAGES[0].of_run(Measurements(run))
    for part in ("c = ≈0.1", "expects ≈", "measured ≈1.40×", "took ≈1.2", "expectation is ≈"):
        assert part in words
    assert words.count("≈") == 5  # counts of tokens need no clock
    assert "≈" not in PAGES[0].of_run(Measurements(replace(run, sure=True)))


def test_without_a_draft_model_there_is_no_c_but_a_speed():
    """Drafts of look-up beside greedy: "greedy did not run", it said."""
    copied = MeasuredSpeculative(60, 100, 4.0, 2.3, None, 1.2, 0.67)
    words = PAGES[0].of_run(Measurements(copied))
    assert "Its speed was 0.67× greedy’s; no draft model ran, so there is no c." in words
    alone = PAGES[0].of_run(Measurements(replace(copied, verify_cost=None, speedup=None)))
    assert "greedy did not run" in alone


SPECULATIVE = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4)
DSBD = MeasuredDSBD(60, 100, 2.0, 1.9)
MTAD = MeasuredMTAD(3.0, 2.5, 40, 0, "warped", 0.1, 4)


def marks(figure, symbol):
    points = (
        trace for trace in figure.data if trace.type == "scatter" and trace.mode == "markers+text"
    )
    return [(point.x[0], point.y[0]) for point in points if point.marker.symbol == symbol]


def test_what_was_measured_is_a_diamond():
    found = Measurements(SPECULATIVE, DSBD, MTAD)
    for page, place in (
        (papers.FIRST, (0.6, 1.4)),
        (papers.SPECULATIVE, (0.6, 1.4)),
        (papers.DSBD, (0.6, 1.9)),
        (papers.MTAD, (2.5, 3.0)),
    ):
        assert marks(page.figure(values(page), found), "diamond") == [place]
