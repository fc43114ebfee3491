"""The opening: two recorded texts that grow pass by pass, words that explain themselves, a legend
that lights its tokens, and panels that fill their rows."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from playwright.sync_api import Page, expect

from decoders import catalog
from tests.browser.actions import finished, link, open_recorded, panel, press_run
from tests.browser.readable import faults
from workbench.runs.record import Result
from workbench.runs.recorded import recorded, recordings
from workbench.studies.presets import SHOWN, placed

FIRST = recordings()[0].run


def raced() -> list[Result]:
    """Greedy, and of the decoders with a draft model the one with the fewest passes a token."""
    drafting = [r for r in FIRST.results if catalog[r.decoder].uses_draft]
    best = min(drafting, key=lambda r: r.metrics["target_calls"] / r.metrics["new_tokens"])
    return [next(r for r in FIRST.results if r.decoder == "greedy"), best]


@pytest.fixture
def page(page) -> Page:
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name="Compare").click()
    return page


def test_two_texts_grow_once_by_a_jump_and_a_tick_for_each_pass(visit, address):
    """The page said "14 passes instead of 64", and nothing moved."""
    page = visit(address)
    lanes = page.locator(".wb-lanes")
    expect(lanes).to_contain_text("The small model guesses ahead, the large one checks.")
    if "over" not in lanes.get_attribute("class"):
        lanes.get_by_role("button", name="Skip").click()
    expect(lanes).to_have_class(re.compile("over"))
    lanes.get_by_role("button", name="Again").click()
    expect(lanes).not_to_have_class(re.compile("over"))
    seen = page.evaluate(
        """() => new Promise((done) => {
            const lanes = document.querySelector(".wb-lanes"), seen = [];
            const look = () => {
                const passes = (lane) => Number(lane.dataset.passes);
                seen.push([...lanes.querySelectorAll(".lane")].map(passes));
                if (lanes.classList.contains("over")) { watch.disconnect(); done(seen); }
            };
            const watch = new MutationObserver(look);
            watch.observe(lanes, { attributes: true, subtree: true });
        })"""
    )
    assert all(a <= b for before, now in pairwise(seen) for a, b in zip(before, now, strict=True))
    for i, result in enumerate(raced()):
        lane = lanes.locator(".lane").nth(i)
        passes = result.metrics["target_calls"]
        expect(lane).to_have_attribute("data-decoder", result.decoder)
        expect(lane.locator(".pass.shown .tick")).to_have_count(passes)
        expect(lane).to_contain_text(f"{passes} passes, ")
        expect(lane).to_contain_text(f"{result.metrics['block_efficiency']:.2f} per pass")
        assert lane.locator(".pass .tok").all_inner_texts()
    # what has ended keeps nothing busy
    page.wait_for_function(
        "!document.querySelector('.wb-lanes').getAnimations({ subtree: true }).length"
    )
    assert faults(page, ".wb-lanes") == []


def test_reduced_motion_shows_the_end(chromium, address):
    context = chromium.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(address, wait_until="commit")
    lanes = page.locator(".wb-lanes").first
    expect(lanes).to_have_class(re.compile("over"))
    assert lanes.evaluate("(box) => box.querySelectorAll('.pass:not(.shown)').length") == 0
    context.close()


def test_a_run_of_ones_own_has_no_lanes(visit, address):
    page = visit(link(address, "Once", decoders="greedy,speculative", max_new_tokens=8))
    expect(page.locator(".wb-lanes")).to_have_count(0)
    press_run(page)
    finished(page)
    expect(page.locator(".wb-lanes")).to_have_count(0)
    open_recorded(page, recordings()[0])
    expect(page.locator(".wb-lanes")).to_have_count(1)


def test_the_certain_figure_is_the_large_one(page):
    """Times greedy stood there, which differs from machine to machine."""
    open_recorded(page, recordings()[0])
    top = panel(page, "greedy").locator(".top .numbers > div")
    expect(top.nth(0)).to_contain_text("tokens per pass")
    expect(top.nth(1)).to_contain_text("× greedy")
    sizes = [
        each.locator("dd").first.evaluate("(n) => parseFloat(getComputedStyle(n).fontSize)")
        for each in (top.nth(0), top.nth(1))
    ]
    assert sizes[0] > sizes[1]


def test_panels_fill_their_rows_and_all_five_begin_on_a_laptops_first_screen(page, server):
    """A laptop showed three panels, and a fourth and fifth below the fold beside a gap."""
    _, host = server
    host.store.save(replace(FIRST, id="a5", results=sorted_(FIRST.results)))
    page.goto(f"{server[0]}?run=a5")
    expect(page.locator("#run")).to_be_enabled()
    expect(page.locator(".wb-panel")).to_have_count(len(FIRST.decoders))
    shown = [box.get_attribute("data-decoder") for box in page.locator(".wb-panel").all()]
    assert shown == placed(FIRST.decoders)
    assert shown[: len(SHOWN)] == [method.name for method in SHOWN]
    for width, rows in ((1366, 1), (1000, 2), (700, 3)):
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function(
            """(rows) => {
                const edge = (box) => Math.round(box.getBoundingClientRect().right);
                const grid = document.querySelector("#panels .wb-grid");
                const tops = new Map();
                for (const box of grid.querySelectorAll(".wb-panel"))
                    tops.set(Math.round(box.getBoundingClientRect().top), edge(box));
                const ends = [...tops.values()];
                return ends.length === rows && Math.max(...ends) - Math.min(...ends) < 2
                    && Math.abs(edge(grid) - ends[0]) < 10;
            }""",
            arg=rows,
        )
    page.goto(server[0])
    expect(page.locator("#run")).to_be_enabled()
    page.set_viewport_size({"width": 1366, "height": 700})
    figure = panel(page, "mtad").locator(".top dd").first
    expect(figure).to_be_in_viewport()


def sorted_(results: list[Result]) -> list[Result]:
    order = placed(r.decoder for r in results)
    return sorted(results, key=lambda r: order.index(r.decoder))


def test_the_legend_lights_its_tokens(page):
    """Pointing at "accepted draft" did nothing, so that nobody saw which words those were."""
    open_recorded(page, recordings()[0])
    strip = page.locator("#panels .wb")
    entry = page.locator(".wb-legend .entry[data-fate=accepted]")
    token = panel(page, raced()[1].decoder).locator(".wb-paper .tok.accepted").first
    plain = token.evaluate("(t) => getComputedStyle(t).outlineStyle")
    entry.hover()
    expect(strip).to_have_attribute("data-lit", "accepted")
    assert token.evaluate("(t) => getComputedStyle(t).outlineStyle") != plain
    page.mouse.move(0, 0)
    expect(strip).not_to_have_attribute("data-lit", "accepted")
    entry.focus()
    page.keyboard.press("Tab")  # with the keyboard
    expect(strip).to_have_attribute("data-lit", re.compile("^(?!accepted)"))
    page.keyboard.press("Shift+Tab")
    expect(strip).to_have_attribute("data-lit", "accepted")
    page.keyboard.press("Enter")  # as a tap
    expect(entry).to_have_attribute("aria-pressed", "true")
    entry.blur()
    expect(strip).to_have_attribute("data-lit", "accepted")
    entry.click()
    page.mouse.move(0, 0)
    entry.blur()
    expect(strip).not_to_have_attribute("data-lit", "accepted")


def test_a_word_explains_itself_to_a_mouse_and_to_the_keyboard(page):
    """ "Perplexity" stood there without a word, or with one that only a mouse found."""
    open_recorded(page, recordings()[0])
    word, help = panel(page, "greedy").locator(".top .wb-term").first, page.locator("#wb-help")
    word.hover()
    expect(help).to_be_visible()
    expect(help).to_contain_text("passes of the large model")
    page.mouse.move(0, 0)
    expect(help).to_be_hidden()
    word.focus()
    expect(help).to_be_visible()
    expect(word).to_have_attribute("aria-describedby", "wb-help")
    assert faults(page, "#wb-help") == []
    page.keyboard.press("Escape")
    expect(help).to_be_hidden()


def test_how_it_works_is_open_as_four_pictures_with_tokens_of_the_run(page):
    """It was a fold that nobody opened."""
    open_recorded(page, recordings()[0])
    pictures = page.locator("#steps .picture")
    expect(pictures).to_have_count(4)
    expect(pictures.first).to_be_visible()
    drafted = {t.text.strip() for r in FIRST.results for o in r.alone.rounds for t in o.trials}
    told = [text.strip() for text in pictures.first.locator(".box .tok").all_inner_texts()]
    assert told
    assert set(told) <= drafted


@pytest.mark.parametrize(
    ("tab", "shows"),
    [("Draws", "#draw-trees .wb-panel"), ("Batch", "#batch-figures table")],
)
def test_a_tab_opens_with_a_recorded_result(visit, address, tab, shows):
    """These tabs opened empty."""
    page = visit(address)
    page.get_by_role("tab", name=tab).click()
    expect(page.locator(shows).first).to_be_visible()
    expect(page.get_by_role("tabpanel").filter(visible=True)).to_contain_text("Recorded on 20")
    assert "run=" not in page.url
    names = page.get_by_role("tablist").first.get_by_role("tab").all_inner_texts()
    assert len(set(names)) == len(names)  # a state among the tabs made a second tab of one
    # a run that is shown stays
    recording = next(each for each in recordings() if each.run.kind == "comparison")
    open_recorded(page, recording)
    page.get_by_role("tab", name=tab).click()
    expect(page.locator(shows).first).to_be_visible()
    assert recorded(recording.run.id) is not None


def test_experiments_open_with_what_became_of_the_papers_orderings(page):
    page.get_by_role("tab", name="Experiments").click()
    found = page.locator("#experiment-orderings")
    expect(found).to_contain_text("Recorded on 20")
    expect(found.locator("li .sign").first).to_have_text(re.compile("[✓✗?–]"))
