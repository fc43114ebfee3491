"""What a visit costs: little to read before the page can be used."""

from playwright.sync_api import expect

from tests.browser.actions import open_lab


def test_a_tab_is_not_on_the_page_until_it_is_opened_and_then_stays_as_it_was_left(visit, address):
    """All 651 components were there from the start, and Gradio went through them twice."""
    page = visit(address)
    assert page.locator("#draw-prompt, #batch-count, #theory-run").count() == 0
    open_lab(page, "Batch")
    expect(page.locator("#batch-figures table")).to_be_visible()  # the recorded run is there
    page.locator("#batch-form > button").click()
    page.wait_for_timeout(1000)  # a fold that opens for the first time fills its fields in
    page.locator("#batch-count input").fill("7")
    page.get_by_role("tab", name="Compare").click()
    open_lab(page, "Batch")
    expect(page.locator("#batch-count input")).to_have_value("7")
