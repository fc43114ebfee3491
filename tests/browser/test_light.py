"""What a visit costs: little to read before the page can be used, and nothing while it is idle."""

from playwright.sync_api import expect

from tests.browser.actions import open_lab

COUNT = """
window.asked = 0;
const real = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (draw) => { window.asked += 1; return real(draw); };
"""


def test_a_load_asks_only_for_what_the_address_says(chromium, address):
    """It also asked what the pair offers, and 118 fields were filled with what they held."""
    context = chromium.new_context()
    page, answers = context.new_page(), []
    page.on("response", lambda answer: answers.append(answer) if "/run/" in answer.url else None)
    page.goto(address)
    expect(page.locator("#run")).to_be_enabled()
    opened = next(answer.json()["data"] for answer in answers if '"trigger_id":0' in _sent(answer))
    assert sum(update != {"__type__": "update"} for update in opened) < 30
    assert not [answer for answer in answers if '"event_data":{' in _sent(answer)]
    context.close()


def _sent(answer):
    return (answer.request.post_data or "").replace(" ", "")


def test_an_idle_page_asks_for_no_frames(chromium, address):
    """Gradio's tracker for the page itself counted for ever: 60 frames a second."""
    context = chromium.new_context()
    context.add_init_script(COUNT)
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#run")).to_be_enabled()
    # Once it is idle: what follows the load has been drawn.
    page.wait_for_function(
        """() => {
            const since = performance.now() - (window.since || 0);
            if (window.asked !== window.before || !window.since) {
                [window.before, window.since] = [window.asked, performance.now()];
                return false;
            }
            return since > 2000;
        }""",
        polling=200,
    )
    context.close()


def test_a_tab_is_not_on_the_page_until_it_is_opened_and_then_stays_as_it_was_left(visit, address):
    """All 651 components were there from the start, and Gradio went through them twice."""
    page = visit(address)
    assert page.locator("#draw-prompt, #batch-count, #theory-run").count() == 0
    open_lab(page, "Batch")
    page.locator("#batch-form > button").click()
    page.locator("#batch-count input").fill("7")
    page.get_by_role("tab", name="Compare").click()
    open_lab(page, "Batch")
    expect(page.locator("#batch-count input")).to_have_value("7")
