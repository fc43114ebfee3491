"""Branching in a browser: from a token to its alternatives to a new run and back. By mouse and by
keyboard."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, link, panel, run
from tests.browser.conftest import visits
from tests.browser.readable import faults_of_screens

PROMPT = "<b>é ${window.hacked=1}</b><img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def first(chromium, address) -> Iterator[tuple[Page, str]]:
    settings = {
        "decoders": "greedy,beam_search,speculative", "max_new_tokens": 10, "temperature": 0.7,
        "top_k": 6,
    }  # fmt: skip
    with visits(chromium) as visit:
        page = visit(link(address, PROMPT, **settings))
        yield page, run(page)


@pytest.fixture
def asked(first) -> Iterator[tuple[Page, str]]:
    """A page that all tests share, and the id of the run that it shows."""
    page, parent = first
    yield first
    page.set_viewport_size({"width": 1400, "height": 1000})
    if f"run={parent}" not in page.url:
        page.evaluate(f"WorkbenchAddress.visit('run={parent}')")
    expect(page.locator("#run-link a").first).to_have_text(f"run {parent}")
    expect(page.locator("#panels .wb-panel")).to_have_count(3)


def token(page: Page, decoder: str, index: int):
    return panel(page, decoder).locator(".wb-paper > .wb-text > .tok:not(.refused)").nth(index)


def test_a_click_shows_alternatives_on_every_screen_and_one_of_them_continues(asked):
    page, parent = asked
    token(page, "speculative", 3).click()
    rows = page.locator(".wb-branch tbody tr")
    expect(page.locator(".wb-branch h3")).to_contain_text("Speculative, token 4")
    expect(rows.nth(19)).to_be_visible()  # the models have answered
    assert rows.filter(has=page.locator(".value", has_text=re.compile("^never$"))).count() >= 14
    expect(page.locator(".wb-branch [role=status]")).to_contain_text(
        "Grey: cut off by the sampling"
    )
    assert faults_of_screens(page, ".wb-branch") == []
    rows.nth(2).locator("input").check()
    page.get_by_role("button", name="Continue with all decoders of this run").click()
    expect(page.locator("#run-link a").first).not_to_have_text(f"run {parent}")
    child = finished(page)
    assert child != parent
    expect(page).to_have_url(re.compile(rf"\?run={child}"))
    expect(page.locator("#panels .wb-panel")).to_have_count(3)
    page.go_back()
    expect(page).to_have_url(re.compile(rf"\?run={parent}"))
    expect(page.locator("#run-link a").first).to_have_text(f"run {parent}")
    page.go_forward()
    expect(page.locator("#run-link a").first).to_have_text(f"run {child}")
    assert page.evaluate("window.hacked") is None


def test_by_keyboard_alone(asked):
    page, parent = asked
    token(page, "greedy", 0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".wb-branch h3")).to_be_focused()
    expect(page.locator(".wb-branch tbody tr").nth(19)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".wb-branch")).to_have_count(0)
    expect(token(page, "greedy", 1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".wb-branch tbody tr").nth(19)).to_be_visible()
    page.locator(".wb-branch tbody input").first.focus()
    page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Continue with Greedy").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#run-link a").first).not_to_have_text(f"run {parent}")
    assert finished(page) != parent
