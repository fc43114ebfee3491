"""Words that explain themselves, a legend that lights its tokens, tabs that open with a result."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import open_recorded, panel
from tests.browser.readable import faults
from workbench.runs.store import recorded, recordings


@pytest.fixture
def page(page) -> Page:
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name="Compare").click()
    return page


def test_the_legend_lights_its_tokens(page):
    """Pointing at "accepted draft" did nothing, so that nobody saw which words those were."""
    open_recorded(page, recordings()[0])
    picture = page.locator("#picture")
    entry = picture.locator(".entry[data-fate=accepted]")
    token = picture.locator(".words .tok.accepted").first
    plain = token.evaluate("(t) => getComputedStyle(t).outlineStyle")
    entry.hover()
    expect(picture).to_have_attribute("data-lit", "accepted")
    assert token.evaluate("(t) => getComputedStyle(t).outlineStyle") != plain
    page.mouse.move(0, 0)
    expect(picture).not_to_have_attribute("data-lit", "accepted")
    entry.click()  # as a tap
    page.mouse.move(0, 0)
    expect(picture).to_have_attribute("data-lit", "accepted")
    entry.click()
    page.mouse.move(0, 0)
    expect(picture).not_to_have_attribute("data-lit", "accepted")


def test_a_word_explains_itself_to_a_mouse_and_to_the_keyboard(page):
    """ "Perplexity" stood there without a word, or with one that only a mouse found; then with one
    that went whenever anything scrolled, as lanes of the picture do while it plays."""
    open_recorded(page, recordings()[0])
    word, help = panel(page, "greedy").locator(".top .wb-term").first, page.locator("#wb-help")
    word.hover()
    expect(help).to_be_visible()
    expect(help).to_contain_text("passes of the large model")
    page.locator("#picture .words").first.dispatch_event("scroll")
    expect(help).to_be_visible()
    page.mouse.move(0, 0)
    expect(help).to_be_hidden()
    word.focus()
    expect(help).to_be_visible()
    expect(word).to_have_attribute("aria-describedby", "wb-help")
    assert faults(page, "#wb-help") == []
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()


@pytest.mark.parametrize(
    ("tab", "shows"), [("Draws", "#draw-trees .wb-panel"), ("Lab", "#batch-figures table")]
)
def test_a_tab_opens_with_a_recorded_result(visit, address, tab, shows):
    """These tabs opened empty."""
    page = visit(address)
    page.get_by_role("tab", name=tab).click()
    expect(page.locator(shows).first).to_be_visible()
    shown = page.get_by_role("tabpanel").filter(visible=True).first
    expect(shown).to_contain_text("Recorded on 20")
    assert "run=" not in page.url
    names = page.get_by_role("tablist").first.get_by_role("tab").all_inner_texts()
    assert len(set(names)) == len(names)  # a state among the tabs made a second tab of one
    # a run that is shown stays
    recording = next(each for each in recordings() if each.run.kind == "comparison")
    open_recorded(page, recording)
    page.get_by_role("tab", name=tab).click()
    expect(page.locator(shows).first).to_be_visible()
    assert recorded(recording.run.id) is not None
