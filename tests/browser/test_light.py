"""What a visit costs: little to read before the page can be used."""

from playwright.sync_api import expect

from tests.browser.actions import open_lab


def test_a_load_asks_only_for_what_the_address_says(chromium, address):
    """It also asked what the pair offers, and 118 fields were filled with what they held."""
    context = chromium.new_context()
    page, answers = context.new_page(), []
    page.on("response", lambda answer: answers.append(answer) if "/run/" in answer.url else None)
    page.goto(address)
    expect(page.locator("#run")).to_be_enabled()
    for _ in range(50):  # an answer is noted some moments after the page has it
        if first := [answer for answer in answers if '"trigger_id":0' in _sent(answer)]:
            break
        page.wait_for_timeout(100)
    opened = first[0].json()["data"]
    # the settings of the recorded run are among them
    assert sum(update != {"__type__": "update"} for update in opened) < 60
    assert not [answer for answer in answers if '"event_data":{' in _sent(answer)]
    context.close()


def _sent(answer):
    return (answer.request.post_data or "").replace(" ", "")


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
