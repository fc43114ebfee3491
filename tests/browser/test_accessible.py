"""Readable and usable for everybody: axe-core finds nothing serious on any tab, and everything is reached by a few keys."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, link, unfold_form
from workbench.runs.recorded import recordings

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
TABS = ("Compare", "Draws", "Batch", "Runs", "Theory", "About")


def faults(page: Page) -> list[str]:
    """What axe-core calls serious or critical, with where it is."""
    expect(page.locator("[aria-label='Empty value']:visible")).to_have_count(0)  # plots that are not drawn yet
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_tab(visit, address, theme):
    """In light mode 295 parts of a page with 15 panels had too little contrast (P5)."""
    page = visit(f"{address}?__theme={theme}")
    expect(page.locator("#headline h2")).to_be_visible()
    for tab in TABS:
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_timeout(500)
        assert faults(page) == [], tab


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_what_unfolds(visit, address, theme):
    page = visit(f"{address}?run={recordings()[0].run.id}&__theme={theme}")
    expect(page.locator("#headline h2")).to_be_visible()
    unfold_form(page)
    page.locator("#settings > button").click()
    page.locator("#models > button").click()
    page.locator("#steps summary").click()
    page.get_by_label("show rejected drafts").check()
    for summary in page.locator("#panels .more summary").all()[:2]:
        summary.click()
    page.wait_for_timeout(500)
    assert faults(page) == []


def test_from_run_to_download_in_a_few_keys(visit, address):
    """It took 144 presses of Tab with 15 decoders (P20)."""
    run = recordings()[5].run
    page = visit(f"{address}?run={run.id}")
    expect(page.locator("#panels .wb-panel")).to_have_count(len(run.decoders))
    page.locator("#run").focus()
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Downloads":
            break
    else:
        pytest.fail("25 presses did not reach the downloads")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("Boolean(document.activeElement.closest('#run-link'))")


def test_ctrl_enter_runs(visit, address):
    page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
    page.locator("#prompt textarea").press("Control+Enter")
    finished(page)
