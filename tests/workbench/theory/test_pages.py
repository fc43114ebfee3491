"""What a page says of a run, in words and on its figures."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.workbench.made import made_batch
from workbench.theory.estimates import NOTHING, measured
from workbench.theory.pages import PAGES

EMS_SD = next(page for page in PAGES if page.title == "EMS-SD")


def values(page, **changes):
    return SimpleNamespace(**{s.name: s.value for s in page.sliders} | changes)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.title)
def test_every_page_speaks_of_every_kind_of_run(page, run, batch_run):
    for each in (run, batch_run, replace(run, results=[])):
        found = measured(each)
        assert page.found(found).endswith((".", "|"))
        assert all(card.figure(values(page), found).data for card in page.cards)
        assert page.tables is None or "formula" in page.tables(found)


def test_a_decoder_without_rounds_is_not_said_to_have_not_run(batch_run):
    """In a batch speculative decoding runs, though no round of it is kept."""
    assert PAGES[0].found(measured(batch_run)) == "This run has no rounds of speculative decoding."


def test_a_batch_stands_next_to_the_formula():
    found = measured(made_batch())
    words, table = EMS_SD.found(found).split("\n\n")
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
    assert not any(t.marker.symbol == "diamond" for t in ratio.figure(values(EMS_SD, batch=5), found).data)


def test_without_a_run_the_figures_have_the_formula_alone():
    assert len(EMS_SD.cards[1].figure(values(EMS_SD), NOTHING).data) == 1
