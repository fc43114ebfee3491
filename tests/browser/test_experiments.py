"""The Experiments tab in Chromium: a visitor's own plan runs while the page is used.

It is there after a reload, on any screen."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import open_lab

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
    open_lab(page, "Experiments")
    expect(page.locator("#experiment-run")).to_be_visible()
    return page


def run(page: Page, file) -> None:
    page.locator("#experiment-plan input").click()
    page.get_by_role("option", name="A plan of yours").click()
    expect(page.locator("#experiment-plan input")).to_have_value("A plan of yours")
    page.locator("#experiment-file input[type=file]").set_input_files(str(file))
    # The name stands there while the file is on its way; the link comes when the server has it.
    expect(page.locator("#experiment-file").get_by_role("link")).to_be_visible()
    page.locator("#experiment-run").click()


@pytest.fixture
def plan(tmp_path, monkeypatch):
    file = tmp_path / "small.toml"
    file.write_text(PLAN)
    return file


def test_a_plan_runs_is_shown_and_is_there_after_a_reload_and_for_a_second_visitor(
    visit, address, plan
):
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
    for again in (tab(page), tab(visit(address))):
        expect(again.locator("#experiment-progress")).to_contain_text(
            "Small <b>plan</b>: 3 of 3 items done"
        )
        expect(again.locator("#experiment-stop")).to_be_hidden()


def assert_free(host) -> None:
    """Whoever waits for the device gets it."""
    assert host.device.turn.acquire(timeout=30)
    host.device.turn.release()


def test_advice_shows_how_far_it_is_and_stops(visit, server):
    """A visitor who asked for advice could not stop it and saw no remaining time."""
    address, host = server
    page = tab(visit(address))
    page.locator("#experiment-advice > button").click()
    said, ask, stop = (page.locator(f"#advice-{name}") for name in ("progress", "run", "stop"))
    count = page.locator("#advice-count input")
    expect(count).to_have_value("5")  # it is filled in as the fold opens
    count.fill("20")
    count.press("Tab")
    ask.click()
    expect(said).to_contain_text(re.compile(r"of \d*[02468]0\) · prompt \d+ · .*about .* left"))
    expect(said.locator(".wb-track")).to_be_visible()
    expect(ask).to_be_hidden()
    stop.click()
    expect(ask).to_be_visible(timeout=5_000)
    expect(said).to_contain_text("Stopped")
    assert_free(host)

    count.fill("3")
    ask.click()
    expect(said).to_contain_text("Done", timeout=120_000)
    answer = page.locator("#advice-figures")
    expect(answer).to_contain_text("The best exact decoder is")
    expect(
        answer.locator("td").filter(has_text=re.compile(r"\d\.\d\d \(\d\.\d\d to \d")).first
    ).to_be_visible()
    expect(stop).to_be_hidden()
