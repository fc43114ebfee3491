"""Draws in a browser: a button, trees side by side that unfold by keyboard, the way to the
proof."""

import re
from itertools import count
from threading import Event
from time import sleep
from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from tests.browser.actions import finished
from tests.browser.readable import faults_of_screens
from workbench.kinds.draw.form import DrawTab

HOSTILE = "<b>é</b><img src=x onerror=window.hacked=1> ${window.hacked=1} {{{window.hacked}}}"


def drawn(visit, address) -> Page:
    asked = {
        "kind": "draw", "prompt": HOSTILE, "draws": 30, "max_new_tokens": 6,
        "decoders": "multinomial,speculative,mtad", "temperature": 0.5,
    }  # fmt: skip
    page = visit(f"{address}?{urlencode(asked)}")
    expect(page.locator("#draw-prompt textarea")).to_have_value(HOSTILE)
    finished(page, "draw-")  # of the link's run: it draws by itself
    return page


def test_trees_side_by_side_with_what_they_say_on_every_screen(visit, address):
    page = drawn(visit, address)
    expect(page.locator("#draw-trees .wb-panel")).to_have_count(3)
    expect(page.locator("#draw-headline .verdict")).to_contain_text("MTAD does not promise to draw")
    expect(page).to_have_url(re.compile(r"\?run="))
    summary = page.locator("#draw-trees summary").first
    summary.focus()
    state = summary.evaluate("(s) => s.parentElement.open")
    page.keyboard.press("Enter")
    assert summary.evaluate("(s) => s.parentElement.open") is not state
    page.locator("#draw-headline .wb-proof summary").click()
    expect(page.locator("#draw-proof pre")).to_be_visible()
    expect(page.locator("#draw-proof")).to_contain_text('assert_law(catalog["speculative"]())')
    assert page.evaluate("window.hacked") is None
    assert page.locator("#draw-trees img, #draw-trees script").count() == 0
    assert faults_of_screens(page, "#draw-trees") == []
    page.reload()
    expect(page.locator("#draw-trees .wb-panel")).to_have_count(3)


def test_a_late_answer_leaves_the_link_as_it_is(visit, address, monkeypatch):
    """Two summaries of the form as it was before its values came were asked for at once; one that
    was late on a busy machine took the place of the right one, and the link forgot the prompt."""
    asked, late, telling = count(), Event(), DrawTab.telling

    def first_late(*form):
        if next(asked) == 0:
            sleep(2)
            late.set()
        return telling(*form)

    monkeypatch.setattr(DrawTab, "telling", first_late)
    page = visit(f"{address}?kind=draw&prompt=Twice")
    assert late.wait(20)
    page.wait_for_timeout(1000)  # its answer has come
    link = page.locator("#draw-settings-link a")
    expect(link).to_have_attribute("href", "?kind=draw&prompt=Twice")
