"""The main path: open, press Run, read, point, replay, stop."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, link, panel, press_run, run, text_of
from tests.browser.conftest import visits
from workbench.runs.record import Result, Run

FIVE = "greedy,beam_search,speculative,mtad,dsbd"
# A byte-level pair writes pieces of emoji, control characters and markup by itself; the prompt adds what templates would run.
HOSTILE = (
    "<b>é 🦊</b><img src=x onerror=window.hacked=1> ${window.hacked=1} {{{window.hacked}}} </script>\n\tif x:\n  y"
)


@dataclass
class Shown:
    """A page on which five decoders have answered a hostile prompt, and the run behind it."""

    page: Page
    run: Run

    def result(self, decoder: str) -> Result:
        return next(r for r in self.run.results if r.decoder == decoder)


@pytest.fixture(scope="module")
def shown(chromium, server) -> Iterator[Shown]:
    address, host = server
    with visits(chromium) as visit:
        page = visit(link(address, HOSTILE, max_new_tokens=24))
        expect(page.locator("#prompt textarea")).to_have_value(HOSTILE)
        yield Shown(page, host.store.get(run(page)))


def test_one_button_five_panels(shown):
    assert [r.decoder for r in shown.run.results] == FIVE.split(",")
    assert shown.page.locator("#panels .wb-panel").count() == 5
    for result in shown.run.results:
        assert text_of(shown.page, result.decoder) == result.alone.text
        counts = f"{result.metrics['new_tokens']} tokens / {result.metrics['target_calls']} passes"
        expect(panel(shown.page, result.decoder).locator(".block_efficiency .detail")).to_have_text(counts)
    expect(shown.page.locator(".chart .main-svg").first).to_be_visible()
    expect(shown.page.locator("#figures tbody tr")).to_have_count(5)


def test_what_a_visitor_writes_stays_text(shown):
    assert shown.page.evaluate("window.hacked") is None
    assert panel(shown.page, "greedy").locator(".prompt").text_content() == HOSTILE
    assert shown.page.locator("#panels img, #panels script").count() == 0
    shown.page.get_by_role("button", name="Environment").click()
    expect(shown.page.locator("#environment")).to_contain_text("${window.hacked=1} {{{window.hacked}}}")
    assert shown.page.evaluate("window.hacked") is None


def test_pointing_at_a_token_shows_what_decided(shown):
    page, result = shown.page, shown.result("speculative").alone
    index = next(i for i, t in enumerate(result.tokens) if t.fate == "accepted")
    card = page.locator("#panels .wb-card")
    panel(page, "speculative").locator(".tok:not(.refused)").nth(index).hover()
    for part in (f"#{result.tokens[index].id}", "p / q", "accept probability", "random number", "Likeliest here"):
        expect(card).to_contain_text(part)
    expect(card.locator("li")).to_have_count(5)
    page.mouse.move(0, 0)
    expect(card).to_be_hidden()
    panel(page, "speculative").locator('.tok[tabindex="0"]').focus()
    expect(card).to_contain_text(f"#{result.tokens[0].id}")
    page.keyboard.press("ArrowRight")
    expect(card).to_contain_text(f"#{result.tokens[1].id}")


def test_rejected_drafts_behind_a_toggle(shown):
    refused = panel(shown.page, "speculative").locator(".wb-paper .tok.rejected")
    rejected = sum(t.fate == "rejected" for r in shown.result("speculative").alone.rounds for t in r.trials)
    assert refused.count() == rejected > 0
    expect(refused.first).to_be_hidden()
    shown.page.get_by_label("show rejected drafts").check()
    expect(refused.first).to_be_visible()
    assert text_of(shown.page, "speculative") == shown.result("speculative").alone.text


def test_replay_walks_the_rounds(shown):
    result = shown.result("dsbd").alone
    panel(shown.page, "dsbd").get_by_role("button", name="Step through its rounds").click()
    replay = shown.page.locator(".wb-replay")
    for i, entry in enumerate(result.rounds):
        expect(replay.locator(".caption")).to_contain_text(f"Round {i + 1} of {len(result.rounds)}")
        assert replay.locator("g.node:not(.trunk)").count() == len({t.node for t in entry.trials})
        if i + 1 < len(result.rounds):
            replay.get_by_label("next round").click()
    assert replay.locator(".wb-text .tok").count() == len(result.tokens)
    replay.get_by_label("play", exact=True).click()
    expect(replay.locator(".caption")).to_contain_text("Round 2 of")
    replay.get_by_label("close the replay").click()
    expect(replay).to_have_count(0)


def test_losing_beams_unfold(shown):
    fold = panel(shown.page, "beam_search").locator("details.beams")
    fold.locator("summary").click()
    expect(fold.locator(".beam").first).to_be_visible()


def test_stop_ends_and_keeps_what_there_is(visit, address, server):
    page = visit(link(address, "Once", decoders="greedy,speculative", max_new_tokens=400, repeats=100))
    press_run(page)
    expect(page.locator("#progress")).to_contain_text("token")
    page.get_by_role("button", name="Stop", exact=True).click()
    id = finished(page)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    kept = server[1].store.get(id)
    assert kept.cancelled
    assert len(kept.results) < 200


def test_phone_and_dark(visit, address, shown):
    page = visit(f"{address}?run={shown.run.id}&__theme=dark", 390, 844)
    expect(panel(page, "dsbd")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert panel(page, "dsbd").bounding_box()["width"] >= 320
    for where, dark in ((page, True), (shown.page, False)):
        ink, paper = contrast(where)
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 4.5
        assert (paper < ink) == dark


def contrast(page: Page) -> tuple[float, float]:
    """Relative luminance of a token's ink and of its panel's paper."""
    return page.evaluate(
        """() => {
            const luminance = (colour) => {
                const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const panel = document.querySelector(".wb-panel");
            return [getComputedStyle(panel.querySelector(".tok")).color, getComputedStyle(panel).backgroundColor].map(luminance);
        }"""
    )
