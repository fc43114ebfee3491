"""Usable for everybody: axe-core finds nothing serious, and a few keys reach everything."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.browser.actions import finished, link, open_recorded
from tests.browser.readable import faults
from workbench.runs.store import id_of, recorded, recordings


def test_from_run_to_download_in_a_few_keys(page):
    """It took 144 presses of Tab with 15 decoders."""
    everything = recorded(id_of("all"))
    open_recorded(page, everything)
    expect(page.locator("#panels .wb-panel")).to_have_count(len(everything.run.decoders))
    page.locator("#run").focus()
    for _ in range(25):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Share":
            break
    else:
        pytest.fail("25 presses did not reach the downloads")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("Boolean(document.activeElement.closest('#run-link'))")


def test_axe_finds_nothing_serious_on_any_tab(page):
    """In light mode 295 parts of a page with 15 panels had too little contrast."""
    open_recorded(page, recordings()[0])
    expect(page.locator("#headline .verdict")).to_be_visible()
    tabs = page.get_by_role("tab")
    for name in ("Compare", "Draws", "Lab", "Batch", "Experiments", "Theory", "Runs"):
        tabs.filter(has_text=re.compile(f"^{name}$")).click()
        # A tab gets its figures when it opens; until then Gradio's plots say that they are empty.
        for _ in range(20):
            page.wait_for_timeout(500)
            if not (found := faults(page)):
                break
        assert found == [], name


def test_axe_finds_nothing_serious_in_any_state(page, server):
    """A tree, a token's card, a run at work, a stopped one, a refusal, a batch, compared runs."""
    address, host = server
    open_recorded(page, recorded(id_of("forest")))
    page.locator("#picture").get_by_role("button", name="DSBD", exact=True).click()
    expect(page.locator("#picture .node").first).to_be_visible()
    assert faults(page, "#picture") == [], "tree"
    page.locator("#picture .lane .tok.corrected").first.click()
    expect(page.locator(".wb-card.pinned .wb-branch")).to_be_visible()
    assert faults(page, ".wb-card") == [], "card"
    page.keyboard.press("Escape")

    page.goto(link(address, "Once", decoders="greedy,speculative", max_new_tokens=400, repeats=100))
    expect(page.locator("#progress")).to_contain_text("token")
    assert faults(page) == [], "at work"
    page.locator("#stop").click()
    finished(page)
    assert faults(page, "#progress") == [], "stopped"
    page.locator("#prompt textarea").fill("")
    page.locator("#prompt textarea").press("Control+Enter")  # does what Run does
    expect(page.locator("#prompt")).to_contain_text("The prompt is empty")
    assert faults(page, "#prompt") == [], "refused"

    page.goto(f"{address}?run=000000000000")
    expect(page.locator("#notice [role=alert]")).to_be_visible()
    expect(page.locator("#run")).to_be_enabled()
    assert faults(page, "#notice") == [], "a run that is gone"
    open_recorded(page, recorded(id_of("batch")))
    expect(page.locator("#batch-figures table")).to_be_visible()
    assert faults(page) == [], "batch"

    for id, recording in zip(("a11", "a12"), recordings(), strict=False):
        host.store.save(replace(recording.run, id=id))
    page.get_by_role("tab", name="Runs").click()
    for id in ("a11", "a12"):
        page.locator(f'#past-runs input[value="{id}"]').check()
    page.get_by_role("button", name="Compare two").click()
    expect(page.locator("#compared .sides").first).to_be_visible()
    assert faults(page, "#compared") == [], "two runs"
    page.get_by_role("textbox", name="Search").fill("no such run")
    expect(page.locator("#past-runs")).to_contain_text("No run matches these words")
    assert faults(page, "#past-runs") == [], "no runs"
