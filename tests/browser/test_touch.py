"""A phone: a tap on a token, with a finger's events."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.actions import panel
from tests.browser.conftest import visits
from tests.browser.readable import faults

THUMB = 44  # px: the least height and width of what a thumb is to hit


@pytest.fixture(scope="module")
def phone(chromium, address) -> Iterator[Page]:
    with visits(chromium) as visit:
        yield visit(address, 390, 844, touch=True)


@pytest.fixture(params=[(390, 844), (360, 640)], ids=["390", "360"])
def page(phone, request) -> Page:
    """The page at its top, at two widths, with nothing open."""
    width, height = request.param
    phone.set_viewport_size({"width": width, "height": height})
    if card(phone).is_visible():
        phone.touchscreen.tap(2, 60)
    expect(card(phone)).to_be_hidden()
    return phone


def card(page: Page) -> Locator:
    return page.locator(".wb-card")


def token(page: Page, index: int, decoder: str = "greedy") -> Locator:
    return panel(page, decoder).locator(".wb-paper > .wb-text > .tok:not(.refused)").nth(index)


def still(page: Page) -> None:
    """Wait until the page has stopped scrolling."""
    page.evaluate(
        """() => new Promise((done) => {
            let last = NaN, same = 0;
            const look = () => {
                same = scrollY === last ? same + 1 : 0;
                last = scrollY;
                same > 15 ? done() : requestAnimationFrame(look);
            };
            look();
        })"""
    )


def tap(page: Page, place: Locator) -> None:
    """The middle of its largest box: a token may begin at the end of a line. Playwright's own tap
    scrolls first."""
    place.scroll_into_view_if_needed()
    still(page)
    x, y = place.evaluate(
        """(element) => {
            const boxes = [...element.getClientRects()].sort((a, b) => b.width - a.width);
            return [boxes[0].x + boxes[0].width / 2, boxes[0].y + boxes[0].height / 2];
        }"""
    )
    page.touchscreen.tap(x, y)


def drag(page: Page) -> None:
    """Scroll the page with a finger."""
    before, finger = page.evaluate("scrollY"), page.context.new_cdp_session(page)
    by = 8 if before > 80 else -8
    for step in range(10):
        kind, place = "touchMove" if step else "touchStart", {"x": 150, "y": 120 + by * step}
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [place]})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("(before) => scrollY !== before", arg=before)


def test_the_first_tap_shows_the_card_of_a_token(page):
    """A tap opened the table of alternatives and scrolled a thousand pixels away. The card closed
    before it could be read."""
    tap(page, token(page, 5))
    expect(card(page)).to_be_visible()
    expect(card(page)).to_contain_text("no draft")
    # On a busy machine a smooth scroll may begin late.
    page.wait_for_function(
        """([word, sheet]) =>
            word.getBoundingClientRect().bottom <= sheet.getBoundingClientRect().top""",
        arg=[token(page, 5).element_handle(), card(page).element_handle()],
    )
    still(page)
    sheet, word = card(page).bounding_box(), token(page, 5).bounding_box()
    assert word["y"] >= 0
    assert word["y"] + word["height"] <= sheet["y"]
    assert sheet["y"] + sheet["height"] <= page.viewport_size["height"]
    assert sheet["x"] >= 0
    assert sheet["x"] + sheet["width"] <= page.viewport_size["width"]
    expect(page.locator(".wb-branch")).to_have_count(0)
    for button in card(page).get_by_role("button").all():
        size = button.bounding_box()
        assert min(size["width"], size["height"]) >= THUMB
    assert faults(page, "#panels") == []


def test_the_button_opens_the_table_and_a_second_tap_closes(page):
    tap(page, token(page, 5))
    expect(card(page)).to_be_visible()
    still(page)
    tap(page, token(page, 5))
    expect(card(page)).to_be_hidden()
    tap(page, token(page, 7))
    card(page).get_by_role("button", name="What else could stand here?").tap()
    expect(page.locator(".wb-branch h3")).to_contain_text("Greedy, token 8")
    assert faults(page, ".wb-card") == []


def test_a_tap_on_another_token_shows_that_one_and_a_tap_elsewhere_closes(page):
    tap(page, token(page, 0))
    expect(card(page)).to_be_visible()
    still(page)
    tap(page, token(page, 1))
    expect(card(page).locator(".card-head .tok")).to_have_text(
        token(page, 1).inner_text().replace(" ", "␣")
    )
    expect(page.locator(".wb-branch")).to_have_count(0)
    drag(page)
    expect(card(page)).to_be_visible()  # to scroll is no tap
    page.touchscreen.tap(2, 60)  # the margin
    expect(card(page)).to_be_hidden()


def small(page: Page, within: str, what: str) -> list[str]:
    """Targets that a thumb cannot hit."""
    found = []
    for target in page.locator(within).locator(what).all():
        size = target.bounding_box()
        if size and min(size["width"], size["height"]) < THUMB:
            found.append(f"{target.inner_text() or target.get_attribute('aria-label')}: {size}")
    return found


TARGETS = "button:not(.wb-term, .whole):not([hidden]), select, summary"


def test_a_picture_and_a_card_for_a_thumb(page):
    """Its buttons were 30 px high, and nothing closed the card but a tap beside it."""
    assert small(page, "#picture", TARGETS) == []
    assert small(page, "#panels", TARGETS) == []
    tap(page, token(page, 5))
    expect(card(page)).to_be_visible()
    assert small(page, ".wb-card", "button") == []
    card(page).get_by_label("close the card").tap()
    expect(card(page)).to_be_hidden()


def test_a_tap_lights_the_tokens_of_the_legend_and_explains_a_word(page):
    """Both needed a mouse that points."""
    entry, picture = page.locator("#picture .entry").first, page.locator("#picture")
    entry.tap()
    expect(picture).to_have_attribute("data-lit", entry.get_attribute("data-fate"))
    entry.tap()
    expect(picture).not_to_have_attribute("data-lit", entry.get_attribute("data-fate"))
    panel(page, "greedy").locator(".top .wb-term").first.tap()
    expect(page.locator("#wb-help")).to_be_visible()
    page.touchscreen.tap(2, 60)
    expect(page.locator("#wb-help")).to_be_hidden()
