"""What other rules would keep: the fold in the replay of a run, in a browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import link, panel, run
from tests.browser.conftest import visits
from tests.browser.readable import faults_of_screens


@pytest.fixture(scope="module")
def page(chromium, address) -> Iterator[Page]:
    settings = {"decoders": "greedy,speculative,specinfer", "max_new_tokens": 12}
    with visits(chromium) as visit:
        page = visit(link(address, "abab <b>é</b>", temperature=0.7, **settings))
        run(page)
        yield page


def replay(page: Page, decoder: str):
    panel(page, decoder).get_by_role("button", name="Step through its rounds").click()
    expect(page.locator(".wb-replay h3")).to_be_visible()
    return page.locator(".wb-replay details.rules")


def test_every_rule_judges_the_round_that_is_shown(page):
    """The answer made the page longer; with its scroll bar the replay was drawn anew, and asked
    again, without an end."""
    fold = replay(page, "speculative")
    fold.locator("summary").click()
    rows = fold.locator("tbody tr")
    expect(rows.first).to_contain_text("this decoder")
    for title in ("Match", "Block verification", "Traversal verification", "Typical", "MTAD"):
        expect(fold.locator("tbody")).to_contain_text(title)
    kept = page.locator(".wb-replay .sentence").inner_text()
    (count,) = re.findall(r"kept (all \d+|the|\d+ of \d+) drafted", kept)
    own = rows.first.locator(".count").first.inner_text()
    number = re.findall(r"\d+", own)
    assert {"the": "1 of 1", f"all {number[1]}": f"{number[1]} of {number[1]}"}.get(
        count, count
    ) == " of ".join(number)
    assert faults_of_screens(page, ".wb-replay .rules") == []
    expect(fold.locator("[role=status]")).to_contain_text("over all random numbers")


def test_another_round_is_asked_about_and_what_is_no_chain_has_no_fold(page):
    fold = replay(page, "speculative")
    fold.locator("summary").click()
    expect(fold.locator("tbody tr").first).to_be_visible()
    page.get_by_label("next round").click()
    expect(fold.locator("tbody tr").first).to_be_visible()
    expect(fold.locator("tbody tr").first).to_contain_text("this decoder")
    expect(replay(page, "greedy")).to_be_hidden()
    expect(replay(page, "specinfer")).to_be_hidden()
    assert page.evaluate("window.hacked") is None
