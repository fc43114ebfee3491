"""The served page shows the opening run before Gradio's scripts have run.

It gives way to Gradio's page without a jump."""

import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from tests.browser.actions import link
from tests.browser.readable import faults
from workbench.page import first_paint
from workbench.runs.recorded import recordings

GRADIO = "**/assets/index-*.js"
PLACES = {  # what stands where in the picture and in the page
    ".opening .head": "#header",
    ".opening .tabs": "[role=tablist]",
    ".opening .gallery": "#gallery",
    ".opening .fold": "#form",
    ".opening .headline": "#headline",
    ".opening .wb-panel": "#panels .wb-panel",
    ".opening .wb-paper": "#panels .wb-paper",
    ".opening .numbers": "#panels .numbers",
}


def served(address: str) -> str:
    return urllib.request.urlopen(address).read().decode()


def picture(chromium, address: str, width: int = 1400, height: int = 1000):
    """The page as it is while Gradio's scripts have not arrived."""
    page = chromium.new_context(viewport={"width": width, "height": height}).new_page()
    page.route(GRADIO, lambda route: route.abort())
    page.goto(address)
    expect(page.locator("#opening .wb-panel").first).to_be_visible()
    return page


def places(page, selectors) -> list[tuple[float, float]]:
    boxes = [page.locator(selector).first.bounding_box() for selector in selectors]
    return [(box["x"], box["y"]) for box in boxes]


@pytest.mark.parametrize(
    ("width", "height", "theme"), [(1400, 1000, "light"), (768, 1024, "dark"), (390, 844, "light")]
)
def test_the_served_page_shows_the_opening_run_at_once(
    chromium, visit, address, width, height, theme
):
    """The run appeared 2.5 s after a first visit began, once Gradio had mounted its page.

    Now nothing moves at that moment."""
    before = picture(chromium, f"{address}?__theme={theme}", width, height)
    expect(before.locator("#opening")).to_contain_text(
        recordings()[0].run.results[0].alone.tokens[0].text.strip()
    )
    expect(before.locator("#opening .wb-panel")).to_have_count(len(recordings()[0].run.decoders))
    looks = (
        "(box) => [getComputedStyle(box).color, getComputedStyle(box).backgroundColor, "
        "getComputedStyle(box).fontFamily]"
    )
    after = visit(f"{address}?__theme={theme}", width, height)
    for (x, y), (later_x, later_y) in zip(
        places(before, PLACES), places(after, PLACES.values()), strict=True
    ):
        assert abs(later_x - x) <= 2
        assert abs(later_y - y) <= 8
    for part, later in (
        (".opening .wb-panel", "#panels .wb-panel"),
        (".opening h2", "#headline h2"),
    ):
        assert before.locator(part).first.evaluate(looks) == after.locator(later).first.evaluate(
            looks
        )
    assert before.evaluate("document.documentElement.scrollWidth") <= width
    before.context.close()


def test_of_the_picture_only_prompt_and_run_are_read_aloud_and_nothing_stays(
    chromium, visit, address
):
    """Two copies of the texts would be read one after the other."""
    before = picture(chromium, address)
    assert (
        before.locator("gradio-app").evaluate("(app) => getComputedStyle(app).visibility")
        == "hidden"
    )
    assert faults(before) == []
    assert before.locator("#opening [id]").count() == 0  # no name is taken from the page
    before.keyboard.press("Tab")
    expect(before.get_by_label("Prompt")).to_be_focused()
    before.keyboard.press("Tab")
    expect(before.get_by_role("button", name="Run", exact=True)).to_be_focused()
    before.keyboard.press("Tab")
    assert before.evaluate("document.activeElement === document.body")
    before.context.close()
    page = visit(address)
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator(".wb-panel")).to_have_count(len(recordings()[0].run.decoders))


def test_nothing_of_gradios_page_is_seen_through_the_picture(chromium, address):
    """The two texts that grow stood twice on the screen, once over the headline."""
    context = chromium.new_context()
    page, waiting = context.new_page(), []
    page.route("**/gradio_api/{queue,run}/**", lambda route: waiting.append(route))
    page.goto(address)
    expect(page.locator("#panels .wb-lanes .pass.shown").first).to_be_attached()
    expect(page.locator("#opening")).to_be_attached()
    seen = "(app) => [...app.querySelectorAll('*')].filter((each) => each.checkVisibility({"
    seen += "visibilityProperty: true})).map((each) => each.outerHTML)"
    assert page.locator("gradio-app").evaluate(seen) == []
    context.close()


@contextmanager
def held(chromium, address, **screen):
    """A page whose Gradio scripts wait, and a function that lets them come."""
    page, waiting = chromium.new_context(**screen).new_page(), []
    sins = []
    page.on("pageerror", lambda error: sins.append(str(error)))
    page.route(GRADIO, lambda route: waiting.append(route))
    page.goto(address, wait_until="commit")
    expect(page.locator("#opening .wb-panel").first).to_be_visible()

    def come():
        for route in waiting:
            route.continue_()
        expect(page.locator("#opening")).to_have_count(0)

    yield page, come
    page.context.close()
    assert not sins


@pytest.mark.parametrize("press", ["keys", "click", "tap"])
def test_what_is_typed_and_pressed_before_gradio_is_there_is_done(chromium, address, press):
    """At a browser's first visit Run could not be pressed for 1.5 s."""
    with held(chromium, address, has_touch=press == "tap") as (page, come):
        run = page.get_by_role("button", name="Run", exact=True)
        page.get_by_label("Prompt").fill("A frog")
        page.keyboard.type(" <b>")
        page.keyboard.press("Enter")  # as in Gradio's field
        if press == "keys":
            page.keyboard.press("Control+Enter")
        else:
            run.tap() if press == "tap" else run.click()
        expect(page.get_by_role("button", name="Starting…")).to_be_visible()
        page.get_by_role("button", name="Starting…").click(force=True)  # once is enough
        page.keyboard.type("later")  # what was pressed is run
        come()
        expect(page.locator("#progress")).to_contain_text("Done")
        expect(page.get_by_label("Prompt").first).to_have_value("A frog <b>")
        expect(page.locator("#panels .wb-paper").first).to_contain_text("A frog <b>")


def test_the_keyboard_stays_where_it_is_when_gradio_comes(chromium, address):
    with held(chromium, address) as (page, come):
        page.get_by_label("Prompt").fill("A frog")
        page.keyboard.press("Home")
        come()
        page.keyboard.type("Hm. ")
        expect(page.get_by_label("Prompt").first).to_have_value("Hm. A frog")
        page.wait_for_timeout(1000)
        expect(page.locator("#run")).to_be_visible()  # nobody pressed it
        expect(page.locator("#progress")).to_be_empty()
    with held(chromium, address) as (page, come):
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        come()
        expect(page.locator("#run")).to_be_focused()


def test_run_decodes_the_prompt_that_was_typed_a_moment_ago(visit, address):
    """A prompt that changed within 5 ms of the press was left out: the prompt before was run."""
    page = visit(address)
    page.evaluate("""() => {
        const prompt = document.querySelector("#prompt textarea");
        prompt.value = "A late frog";
        prompt.dispatchEvent(new Event("input", { bubbles: true }));
        document.querySelector("#run").click();
    }""")
    expect(page.locator("#progress")).to_contain_text("Done")
    expect(page.locator("#panels .wb-paper").first).to_contain_text("A late frog")


def test_two_presses_at_once_are_one(visit, address):
    """Gradio did not see the first one while Run waited for the last keystroke."""
    page, asked = visit(address), []
    page.on("request", lambda request: asked.append(request) if "/queue/join" in request.url else 0)
    page.evaluate("""() => {
        const run = document.querySelector("#run");
        run.click();
        setTimeout(() => run.click(), 10);
    }""")
    expect(page.locator("#progress")).to_contain_text("Done")
    page.wait_for_timeout(500)
    expect(page.locator("#progress")).to_contain_text("Done")
    assert len(asked) == 1


def test_an_address_that_asks_for_something_is_not_given_the_opening_run(address):
    assert 'id="opening"' in served(address)
    assert 'id="opening"' in served(f"{address}?__theme=dark&utm_source=a")
    for asked in (
        "?run=nothing",
        "?run=",
        f"?run={recordings()[1].run.id}",
        "?prompt=%3Cb%3E",
        "?temperature=x",
    ):
        page = served(address + asked)
        assert 'id="opening"' not in page
        assert "const WorkbenchPage" in page
    assert 'id="opening"' not in served(link(address, "Once", decoders="greedy"))


def test_texts_of_the_opening_run_stay_texts(server, monkeypatch):
    """No text of a recorded run can end the script that holds it or become markup."""
    _, host = server
    evil = "</script><img src=x onerror=alert(1)>\u202e\0"
    first = recordings()[0]
    study = {**first.run.study, "prompt": evil}
    forged = replace(first, title=evil, says=evil, run=replace(first.run, title=evil, study=study))
    for module in (first_paint, first_paint.words):
        monkeypatch.setattr(module, "recordings", lambda: (forged,))
    with first_paint.gr.Blocks() as blocks, first_paint.gr.Tabs(), first_paint.gr.Tab(evil):
        pass
    blocks.theme_hash = "0"
    page = first_paint.FirstPaint(host, blocks)
    text = page.completed(b"<head></head><gradio-app>", {}).decode() + page.panels.decode()
    assert "<img" not in text
    assert text.count("</script>") == 3  # the two of the head, and the picture's own
