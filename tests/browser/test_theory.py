"""The Theory tab: numbers move, curves follow, and an unusable value gives one sentence."""

import itertools

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import open_lab
from workbench.theory import PAGES

TOKENS = "tokens per round · "  # of the words under the sliders


FILLS = """() => [...document.querySelectorAll(".js-plotly-plot")]
    .filter((plot) => plot.offsetParent).every((plot) => Math.abs(
        plot.querySelector(".main-svg").getBoundingClientRect().width - plot.clientWidth) < 2)"""


@pytest.fixture
def tab(page) -> Page:
    """The first page of theory, with acceptance and draft length as they are at first."""
    open_lab(page, "Theory")
    page.get_by_role("tab", name=PAGES[0].title).click()
    page.get_by_label("number input for acceptance α").fill("0.8")
    page.get_by_label("number input for draft length γ").fill("5")
    # the first chart brings its library along
    expect(marks(page, "2.95×")).to_be_visible(timeout=60_000)
    return page


def marks(page: Page, text: str):
    """A number written into a chart."""
    return page.locator(".js-plotly-plot .textpoint text", has_text=text).first


def test_the_charts_follow_the_sliders(tab):
    tab.get_by_label("number input for acceptance α").fill("0.6")
    expect(marks(tab, "1.91×")).to_be_visible()
    expect(tab.get_by_text(TOKENS).first).to_contain_text("2.38")
    tab.get_by_label("range slider for draft length γ").focus()
    tab.keyboard.press("ArrowRight")
    expect(marks(tab, "1.87×")).to_be_visible()
    expect(tab.get_by_text(TOKENS).first).to_contain_text("2.43")


def test_it_opens_with_one_picture_of_two_sliders(tab):
    """The first picture had four sliders named by Greek letters."""
    words = tab.locator(".wb-now").first
    tab.get_by_label("number input for how often a guess is kept").fill("0.9")
    expect(words).to_contain_text("4.67 times as fast")
    expect(marks(tab, "4.67×")).to_be_visible()
    tab.get_by_label("number input for what a guess costs").fill("1")
    expect(words).to_contain_text("guessing does not pay here")
    expect(words).to_contain_text("guesses were kept")


def test_every_page_is_one_click_away(tab):
    """At 390 px two of the four were hidden in a menu "…"."""
    for page, width in itertools.product(PAGES, (390, 1400)):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.get_by_role("tab", name=page.title).click()
        expect(tab.get_by_text(page.source[:20]).first).to_be_visible()
        # beside that of the opening picture
        expect(tab.locator(".js-plotly-plot:visible")).to_have_count(2)
        expect(tab.locator(".js-plotly-plot:visible .main-svg").first).to_be_visible()
        tab.wait_for_function(FILLS)  # drawn while hidden, charts kept 700 px in boxes of 296
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tops = {
            tab.get_by_role("tab", name=name).bounding_box()["y"] for name in ("Compare", "Runs")
        }
        assert len(tops) == 1
