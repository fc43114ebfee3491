"""The first ten seconds: a visitor sees a result, what it says, and how to get one of their own."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import (
    finished,
    link,
    open_lab,
    open_recorded,
    press_run,
    run,
    setting,
    unfold_form,
)
from tests.browser.conftest import visits
from workbench.runs.store import recordings

# What takes the focus, the words and the sizes of type on the first screen, the picture apart.
FIRST_SCREEN = """() => {
    const seen = (element) => element.checkVisibility({ visibilityProperty: true,
        contentVisibilityAuto: true }) && !element.closest("#picture, .wb-unseen, .wb-skip");
    const within = (box) => box.width > 2 && box.height > 2 && box.top < innerHeight
        && box.bottom > 0 && box.right > 0;
    const stops = [...document.querySelectorAll(
        "a[href], button, input, select, textarea, summary, [tabindex]")]
        .filter((each) => each.tabIndex >= 0 && !each.disabled && seen(each)
            && within(each.getBoundingClientRect()));
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const words = [], sizes = new Set();
    for (let node; (node = walker.nextNode());) {
        const range = document.createRange();
        range.selectNodeContents(node);
        const text = node.textContent.trim(), parent = node.parentElement;
        if (!text || /SCRIPT|STYLE/.test(parent.tagName) || !seen(parent)
            || !within(range.getBoundingClientRect())) continue;
        words.push(...text.split(/\\s+/));
        sizes.add(getComputedStyle(parent).fontSize);
    }
    return { stops: stops.map((each) => each.id || each.textContent), words, sizes: [...sizes] };
}"""


def test_the_first_screen_is_one_picture_and_few_words(chromium, server, monkeypatch):
    """It had 776 words, 59 things that take the focus, and 12 sizes of type. No model computes it:
    nothing may reach the device."""
    address, host = server
    monkeypatch.setattr(
        host.device, "run", lambda *_: pytest.fail("a model ran for a recorded run")
    )
    with visits(chromium) as visit:
        page = visit(address)
        expect(page.locator("#picture")).to_be_visible()
        expect(page.locator("#chart-2 .js-plotly-plot")).to_be_visible()
        found = page.evaluate(FIRST_SCREEN)
        assert len(found["stops"]) <= 20, found["stops"]
        assert len(found["words"]) <= 160, found["words"]
        assert set(found["sizes"]) <= {"28px", "18px", "15px", "13px"}
        top = page.get_by_role("tablist").first.get_by_role("tab").filter(visible=True)
        assert top.all_inner_texts() == ["Compare", "Draws", "Lab", "Runs"]
        first = recordings()[0].run
        expect(page.locator("#panels .wb-panel")).to_have_count(len(first.decoders))
        expect(page.locator("#headline")).to_contain_text(f"Recorded on {first.created[:10]}")
        assert "run=" not in page.url


def test_a_phones_first_screen_has_the_prompt_run_and_the_picture(visit, address):
    """A default run took 17 screens; its texts began 170 px below the first."""
    page = visit(address, 390, 844)
    expect(page.locator("#picture")).to_be_visible()
    for place in ("#prompt textarea", "#run"):
        box = page.locator(place).bounding_box()
        assert box["y"] + box["height"] < 844
    assert page.locator("#picture").bounding_box()["y"] < 600
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("document.documentElement.scrollHeight") < 7 * 844


def test_the_prompt_is_three_stops_away_and_run_the_next(visit, address):
    """Eighteen presses of Tab led to Run."""
    page = visit(address)
    expect(page.locator("#picture")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.locator(".wb-skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#prompt textarea")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#run")).to_be_focused()


@pytest.fixture
def page(page) -> Page:
    """The tab that compares, on a screen as wide as usual."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name="Compare").click()
    return page


def test_examples_and_links_show_each_recorded_run(page):
    for recording in recordings():
        open_recorded(page, recording)
        if recording.run.kind == "comparison":
            expect(page.locator("#panels .wb-panel")).to_have_count(len(recording.run.decoders))
            expect(page.locator("#prompt textarea")).to_have_value(recording.run.title)
    assert recordings()[-1].run.id in page.url


def test_on_run_the_results_come_into_view_with_their_speed(visit, address):
    """While it ran, a laptop showed only the panels' titles; on a phone only the button changed."""
    page = visit(link(address, "Once", decoders="greedy,speculative", max_new_tokens=300))
    finished(page)
    for width, height in ((1400, 1000), (1366, 700), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("scrollTo(0, 0)")
        press_run(page)
        expect(page.locator("#headline .verdict")).to_have_count(0)  # that of the run before
        text = page.locator('#picture [data-decoder="greedy"] .tok').first
        expect(text).to_be_visible()
        expect(text).to_be_in_viewport()
        finished(page)
        expect(page.locator("#picture")).to_be_in_viewport()


def test_the_page_stays_as_wide_while_a_run_waits(visit, server):
    """On Run it shrank from 1080 px to 928, its longest line, and grew again with the texts."""
    address, host = server
    page = visit(address)
    expect(page.locator("#picture")).to_be_visible()
    before = page.locator("#ask").bounding_box()
    with host.device.turn:
        page.locator("#prompt textarea").fill("Wide")
        press_run(page)
        expect(page.locator("#progress")).to_contain_text("Preparing the models")
        expect(page.locator("#picture .lane")).to_have_count(0)
        during = page.locator("#ask").bounding_box()
    assert (during["x"], during["width"]) == (before["x"], before["width"])
    finished(page)


def test_after_a_reload_during_a_run_the_page_says_where_its_finished_part_is(chromium, address):
    """The run was lost without a word, together with the results of the finished decoders."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(link(address, "Once", decoders="greedy,speculative", max_new_tokens=400, repeats=100))
    expect(page.locator("#progress")).to_contain_text(re.compile(r"\(([3-9]|\d\d+) of 200\)"))
    page.reload()
    expect(page.locator("#notice")).to_contain_text("Its finished part is kept as run")
    page.locator("#notice a").click()
    expect(page.locator("#progress")).to_contain_text("Stopped")
    expect(page.locator("#panels .wb-panel").first).to_be_visible()
    expect(page.locator("#notice")).to_have_count(0)  # it is said once
    context.close()


def test_a_preset_says_what_it_sets_and_is_left_when_that_changes(visit, address):
    """Presets kept their name after settings changed, and silently reset decoders and tokens. A
    laptop did not show all of their names."""
    page = visit(link(address, "Once", decoders="mtad", max_new_tokens=7), 1366, 700)
    unfold_form(page)
    preset = page.locator("#preset input")
    expect(preset).to_have_value("sampling T=1: temperature 1")
    preset.click()
    page.get_by_role("option", name="MTAD paper: temperature 1, top-k 20, top-p 0.9").click()
    expect(preset).to_have_value("MTAD paper: temperature 1, top-k 20, top-p 0.9")
    for width in (768, 1024, 1366):
        page.set_viewport_size({"width": width, "height": 700})
        assert preset.evaluate(
            "(box) => box.clientWidth > 0 && box.scrollWidth <= box.clientWidth"
        ), width
    expect(page.locator("#decoders input:checked")).to_have_count(1)
    expect(setting(page, "max new tokens")).to_have_value("7")
    setting(page, "top k").fill("21")
    expect(preset).to_have_value("your own settings")


def test_the_address_names_the_tab_and_back_goes_to_the_tab_before(visit, address):
    """The tab was not in the address: a reload or a copy opened Compare, and Back left the page."""
    page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
    id = run(page)
    draws, runs = (page.get_by_role("tab", name=name) for name in ("Draws", "Runs"))
    runs.click()
    expect(page).to_have_url(f"{address}?run={id}&tab=runs")
    draws.click()
    expect(page).to_have_url(re.compile("&tab=draw$"))
    page.go_back()
    expect(runs).to_have_attribute("aria-selected", "true")
    expect(page).to_have_url(re.compile("&tab=runs$"))
    page.go_forward()
    expect(draws).to_have_attribute("aria-selected", "true")
    page.reload()
    expect(draws).to_have_attribute("aria-selected", "true")
    open_lab(page, "Theory")
    expect(page).to_have_url(re.compile("&tab=theory$"))
    page.locator("#footer a[data-tab]").click()
    expect(page).to_have_url(re.compile("&tab=about$"))
    expect(page.locator("#about")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(re.compile("&tab=theory$"))
    expect(page.get_by_role("tab", name="Theory")).to_have_attribute("aria-selected", "true")
    page.go_back()  # what the lab opened with
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(draws).to_have_attribute("aria-selected", "true")
    page.go_forward()
    expect(page.get_by_role("tab", name="Batch")).to_be_visible()
    page.get_by_role("tab", name="Compare").click()
    expect(page).not_to_have_url(re.compile("tab="))
    expect(page.locator("#prompt textarea")).to_have_value("Once")
    runs.click()
    page.locator("#past-runs tbody tr", has_text=id).locator("input").click()
    page.locator("#open-run").click()
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(page).to_have_url(f"{address}?run={id}")
    page.go_back()
    expect(runs).to_have_attribute("aria-selected", "true")


def test_back_and_forward_walk_through_examples_and_runs(visit, address):
    """Back left the site, whatever had been shown."""
    page = visit(address)
    first, second = recordings()[:2]
    page.locator("#gallery button").nth(1).click()
    expect(page).to_have_url(f"{address}?run={second.run.id}")
    page.locator("#prompt textarea").fill("A run of my own")
    id = run(page)
    expect(page).to_have_url(f"{address}?run={id}")
    page.go_back()
    expect(page).to_have_url(f"{address}?run={second.run.id}")
    expect(page.locator("#prompt textarea")).to_have_value(second.run.title)
    expect(page.locator("#headline")).to_contain_text(second.title)
    page.go_back()
    expect(page).to_have_url(address)
    expect(page.locator("#prompt textarea")).to_have_value(first.run.title)
    for _ in range(2):
        page.go_forward()
    expect(page.locator("#prompt textarea")).to_have_value("A run of my own")
    expect(page.locator("#run-link")).to_contain_text(id)


def test_a_link_to_settings_runs_at_once(visit, server):
    """It opened a page with a form and nothing below it, and a stranger took it for broken."""
    address, host = server
    page = visit(link(address, "By itself", decoders="greedy", max_new_tokens=4))
    assert host.store.get(finished(page)).title == "By itself"
    expect(page.locator("#picture")).to_be_visible()


def test_a_run_that_is_gone_is_one_sentence_and_a_greyed_example(visit, address):
    """It opened an empty page."""
    page = visit(f"{address}?run=000000000000")
    expect(page.locator("#notice")).to_contain_text("it may have been deleted. Below is an example")
    expect(page.locator("#picture")).to_be_visible()
    assert page.locator("#band-picture").evaluate("(box) => getComputedStyle(box).opacity") == "0.5"
    page.locator("#gallery button").first.click()
    expect(page.locator("#notice")).to_be_hidden()
    assert page.locator("#band-picture").evaluate("(box) => getComputedStyle(box).opacity") == "1"
