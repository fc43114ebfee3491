"""What other rules would keep: the fold under a round of a run, in a browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import link, run
from tests.browser.conftest import visits
from tests.browser.readable import faults_of_screens


@pytest.fixture(scope="module")
def page(chromium, address) -> Iterator[Page]:
    settings = {"decoders": "greedy,speculative,specinfer", "max_new_tokens": 12}
    with visits(chromium) as visit:
        page = visit(link(address, "abab <b>é</b>", temperature=0.7, **settings))
        run(page)
        yield page


def fold_of(page: Page, decoder: str):
    """The fold under a round of a decoder, which is up close."""
    page.locator("#picture").get_by_role("button", name=decoder, exact=True).click()
    return page.locator("#picture details.rules")


def test_every_rule_judges_the_round_that_is_shown(page):
    fold = fold_of(page, "Speculative")
    fold.locator("summary").click()
    rows = fold.locator("tbody tr")
    expect(rows.first).to_contain_text("this decoder")
    for title in ("Match", "Block verification", "Traversal verification", "Typical", "MTAD"):
        expect(fold.locator("tbody")).to_contain_text(title)
    drafted = page.locator("#picture .col.drafted")
    kept = page.locator("#picture .col.drafted.accepted").count()
    own = re.findall(r"\d+", rows.first.locator(".count").first.inner_text())
    assert own == [str(kept), str(drafted.count())]
    assert faults_of_screens(page, "#picture .rules") == []
    expect(fold.locator("[role=status]")).to_contain_text("over all random numbers")
    fold.locator("summary").click()


def test_another_round_is_asked_about_and_what_is_no_chain_has_no_fold(page):
    fold = fold_of(page, "Speculative")
    fold.locator("summary").click()
    expect(fold.locator("tbody tr").first).to_be_visible()
    page.locator("#picture").get_by_label("the round before").click()
    expect(fold.locator("tbody tr").first).to_contain_text("this decoder")
    expect(fold_of(page, "SpecInfer")).to_be_hidden()
    assert page.evaluate("window.hacked") is None
