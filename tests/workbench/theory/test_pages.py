"""Statements of a page about a run, in words and on its figures."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.theory import expected_tokens, walltime_factor
from tests.workbench.made import made_batch
from workbench.show.quantities import gives
from workbench.theory import PAGES
from workbench.theory.estimates import NOTHING, MeasuredSpeculative, Measurements, measured

EMS_SD = next(page for page in PAGES if page.title == "EMS-SD")


def values(page, **changes):
    return SimpleNamespace(**{s.name: s.value for s in page.fields} | changes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_every_page_speaks_of_every_kind_of_run(page, run, batch_run):
    for each in (run, batch_run, replace(run, results=[])):
        found = measured(each)
        assert page.of_run(found).endswith((".", "|"))
        assert all(card.figure(values(page), found).data for card in page.cards)
        assert page.tables is None or "formula" in page.tables(found)


def test_a_decoder_without_rounds_is_not_said_to_have_not_run(batch_run):
    """In a batch speculative decoding runs, though no round of it is kept."""
    assert PAGES[0].of_run(measured(batch_run)) == "This run has no rounds of speculative decoding."


@given(
    st.integers(1, 99),
    st.floats(0.5, 12),
    st.floats(0.01, 0.5),
    st.floats(0.5, 2),
    st.sampled_from([True, False]),
)
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
    assert gives(tokens, expected_tokens(float(alpha), float(shown)))
    row = PAGES[0].tables(found).strip().splitlines()[-1]
    assert (f"**{alpha}**" in row, f"**{shown}**" in row) == (True, True)
    if timed:
        each, faster, took, then = re.search(
            r"c = (\S+) of .* expects (\S+)×, .* took (\S+) passes, .* is (\S+)×", words
        ).groups()
        assert gives(faster, walltime_factor(float(alpha), float(shown), float(each)))
        cost = float(shown) * float(each) + float(took)
        assert gives(then, expected_tokens(float(alpha), float(shown)) / cost)


def test_what_disturbed_timings_gave_is_marked():
    """Expected and measured values of a disturbed run stood there as if they were certain."""
    run = MeasuredSpeculative(60, 100, 4.0, 2.3, 0.1, 1.2, 1.4, sure=False)
    words = PAGES[0].of_run(Measurements(run))
    for part in ("c = ≈0.1", "expects ≈", "measured ≈1.40×", "took ≈1.2", "expectation is ≈"):
        assert part in words
    assert words.count("≈") == 5  # counts of tokens need no clock
    assert PAGES[0].tables(Measurements(run)).strip().splitlines()[-1].count("≈") == 3
    assert "≈" not in PAGES[0].of_run(Measurements(replace(run, sure=True)))


def test_without_a_draft_model_there_is_no_c_but_a_speed():
    """Drafts of look-up beside greedy: "greedy did not run", it said."""
    copied = MeasuredSpeculative(60, 100, 4.0, 2.3, None, 1.2, 0.67)
    words = PAGES[0].of_run(Measurements(copied))
    assert "Its speed was 0.67× greedy’s; no draft model ran, so there is no c." in words
    alone = PAGES[0].of_run(Measurements(replace(copied, verify_cost=None, speedup=None)))
    assert "greedy did not run" in alone


def test_a_batch_stands_next_to_the_formula():
    found = measured(made_batch())
    words, table = EMS_SD.of_run(found).split("\n\n")
    assert words.startswith("Prompt lookup gained 2.50 tokens per round, mean of 4 samples")
    heads, _, row = table.splitlines()
    assert [cell.strip() for cell in row.split("|")][1] == "4"
    assert row.endswith("| 25% |")
    assert "vanilla scheme" in heads


def test_batches_are_diamonds_and_bars_at_a_size_that_was_run():
    found = measured(made_batch())
    (run,) = found.batches
    longest, distribution, pads, ratio = EMS_SD.cards
    for card, part in ((longest, "longest"), (pads, "pads"), (ratio, "ratio")):
        figure = card.figure(values(EMS_SD, batch=4), found)
        (diamond,) = [t for t in figure.data if t.marker.symbol == "diamond"]
        assert (diamond.x[0], diamond.y[0]) == (run.p, getattr(run.padding(4), part))
        assert "Prompt lookup" in diamond.text[0]
    _, bar = distribution.figure(values(EMS_SD, batch=4), found).data
    assert list(bar.y) == run.longest(4, 8)
    assert len(distribution.figure(values(EMS_SD, batch=5), found).data) == 1
    assert not any(
        t.marker.symbol == "diamond" for t in ratio.figure(values(EMS_SD, batch=5), found).data
    )


def test_without_a_run_the_figures_have_the_formula_alone():
    assert len(EMS_SD.cards[1].figure(values(EMS_SD), NOTHING).data) == 1
