"""The Experiments tab in Chromium: a plan of one's own runs while the page is used, and is there after a reload, on any screen."""

import pytest
from playwright.sync_api import Page, expect

PLAN = """
title = "Small <b>plan</b>"
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
    page.get_by_role("tab", name="Experiments").click()
    expect(page.locator("#experiment-run")).to_be_visible()
    return page


def run(page: Page, file) -> None:
    page.locator("#experiment-plan input").click()
    page.get_by_role("option", name="A plan of yours").click()
    page.locator("#experiment-file input[type=file]").set_input_files(str(file))
    page.locator("#experiment-run").click()


@pytest.fixture
def plan(tmp_path, monkeypatch):
    file = tmp_path / "small.toml"
    file.write_text(PLAN)
    return file


def test_a_plan_runs_is_shown_and_is_there_after_a_reload_and_for_a_second_visitor(visit, address, plan):
    page = tab(visit(address))
    run(page, plan)
    expect(page.locator("#experiment-progress")).to_contain_text("3 of 3 items done", timeout=120_000)
    expect(page.locator("#experiment-report td").filter(has_text="mtad threshold=0.9").first).to_be_visible()
    expect(page.locator("#experiment-report svg.plot").first).to_be_visible()
    page.reload()
    for again in (tab(page), tab(visit(address))):
        expect(again.locator("#experiment-progress")).to_contain_text("Small <b>plan</b>: 3 of 3 items done")
        expect(again.locator("#experiment-stop")).to_be_hidden()


def test_nothing_is_wider_than_the_screen(visit, address, plan):
    page = tab(visit(address, width=390))
    run(page, plan)
    expect(page.locator("#experiment-report td").filter(has_text="speculative").first).to_be_visible(timeout=120_000)
    for width in (390, 768, 1400):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
