"""The Experiments tab in Chromium: a plan runs while the page is used. It is there after a reload,
on any screen."""

import re

from playwright.sync_api import Page, expect

from tests.browser.actions import open_lab

STOPPED = "stopped; press Resume to finish it"


def tab(page: Page) -> Page:
    open_lab(page, "Experiments")
    expect(page.locator("#experiment-run")).to_be_visible()
    return page


def run(page: Page) -> None:
    page.locator("#experiment-plan input").click()
    page.get_by_role("option", name="rules: ").click()
    expect(page.locator("#experiment-about")).to_contain_text("Verification rules")
    page.locator("#experiment-limit input").fill("1")
    page.locator("#experiment-run").click()


def test_a_plan_runs_is_shown_and_is_there_after_a_reload(visit, address):
    page = tab(visit(address))
    run(page)
    expect(
        page.locator("#experiment-report td").filter(has_text="speculative rule=match").first
    ).to_be_visible(timeout=120_000)
    expect(page.locator("#experiment-report .js-plotly-plot").first).to_be_visible()
    page.locator("#experiment-stop").click()
    expect(page.locator("#experiment-progress")).to_contain_text(STOPPED, timeout=60_000)
    expect(page.locator("#experiment-past input")).to_have_value(re.compile("Which rule"))
    # it stayed above a filled list
    expect(page.locator("#experiment-past")).not_to_contain_text("None yet")
    page.reload()
    expect(tab(page).locator("#experiment-progress")).to_contain_text(STOPPED)
    expect(page.locator("#experiment-stop")).to_be_hidden()
    expect(page.locator("#experiment-resume")).to_be_visible()
