"""The Experiments tab in Chromium: a visitor's own plan runs while the page is used. It is there
after a reload, on any screen."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import open_lab

PLAN = """
title = "Small <b>plan</b>"
about = "Few prompts."
[[part]]
limit = 3
max_new_tokens = 6
decoders = ["speculative", { name = "mtad", threshold = [0.1, 0.9] }]
[[draw]]
kind = "curve"
part = "part 1"
x = "threshold"
y = ["x greedy", "perplexity"]
"""


def tab(page: Page) -> Page:
    open_lab(page, "Experiments")
    expect(page.locator("#experiment-run")).to_be_visible()
    return page


def run(page: Page, file) -> None:
    page.locator("#experiment-plan input").click()
    page.get_by_role("option", name="A plan of yours").click()
    expect(page.locator("#experiment-plan input")).to_have_value("A plan of yours")
    page.locator("#experiment-file input[type=file]").set_input_files(str(file))
    # The name stands there while the file is on its way, and the link before the plan is read.
    expect(page.locator("#experiment-about")).to_have_text("Few prompts.")
    page.locator("#experiment-run").click()


@pytest.fixture
def plan(tmp_path, monkeypatch):
    file = tmp_path / "small.toml"
    file.write_text(PLAN)
    return file


def test_a_plan_runs_is_shown_and_is_there_after_a_reload(visit, address, plan):
    page = tab(visit(address))
    run(page, plan)
    expect(page.locator("#experiment-progress")).to_contain_text(
        "3 of 3 items done", timeout=120_000
    )
    expect(
        page.locator("#experiment-report td").filter(has_text="mtad threshold=0.9").first
    ).to_be_visible()
    expect(page.locator("#experiment-report svg.plot").first).to_be_visible()
    expect(page.locator("#experiment-past input")).to_have_value(re.compile("Small <b>plan</b>"))
    # it stayed above a filled list
    expect(page.locator("#experiment-past")).not_to_contain_text("None yet")
    page.reload()
    expect(tab(page).locator("#experiment-progress")).to_contain_text(
        "Small <b>plan</b>: 3 of 3 items done"
    )
    expect(page.locator("#experiment-stop")).to_be_hidden()
