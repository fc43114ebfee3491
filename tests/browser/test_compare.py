"""The main path: open, press Run, read, point, stop."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, link, open_share, panel, run, text_of, unfold_texts
from tests.browser.conftest import visits
from tests.browser.test_picture import assert_read_off
from workbench.runs.figures import label
from workbench.runs.record import Result, Run
from workbench.runs.store import id_of, recorded

PLAIN = ("greedy", "multinomial")
FIVE = "greedy,speculative,mtad,dsbd,beam_search"
# A byte-level pair writes pieces of emoji, control characters and markup by itself; the prompt adds
# text that templates would run.
HOSTILE = (
    "<b>é 🦊</b><img src=x onerror=window.hacked=1> ${window.hacked=1} {{{window.hacked}}} "
    "</script>\n\tif x:\n  y"
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
        expect(panel(shown.page, result.decoder).locator(".block_efficiency .detail")).to_have_text(
            counts
        )
    expect(shown.page.locator("#charts .js-plotly-plot")).to_have_count(3)
    expect(shown.page.locator("#summary tbody tr")).to_have_count(5)
    shown.page.locator("#researchers > button").click()
    expect(shown.page.locator("#figures tbody tr")).to_have_count(5)


MANY = "greedy,multinomial,speculative,mtad,dsbd,beam_search,lookup,suffix,traversal"


def test_every_word_of_a_run_of_ones_own_is_read_off_the_picture(visit, address):
    """The one picture showed no guess and no refusal, and vanished with the visitor's own run.
    Below, what each decoder drafted, kept, struck, corrected and got for free is compared with the
    run's JSON, for every decoder that ran."""
    page = visit(link(address, "A prompt of my own", decoders=MANY, max_new_tokens=12, seed=3))
    run(page)
    open_share(page)
    with page.expect_download() as saving:
        page.locator("#run-link").get_by_role("link", name="JSON").click()
    open_share(page)  # shuts it
    kept = Run.from_json(saving.value.path().read_bytes())
    for plain in PLAIN:
        chips = page.get_by_role("group", name="the plain decoder").get_by_role("button")
        chips.filter(has_text=label(plain)).click()
        lane = page.locator(f'#picture .lane[data-decoder="{plain}"] .wb-text')
        assert lane.text_content() == Shown(page, kept).result(plain).alone.text
    guessers = page.get_by_role("group", name="the decoder that guesses")
    guessers.get_by_role("button", name=re.compile("more decoders")).click()
    read = []
    for chip in guessers.locator(".chip").all():
        chip.click()
        read.append(page.locator("#picture .lane").last.get_attribute("data-decoder"))
        assert_read_off(page, kept, read[-1])
    assert sorted(read) == sorted(name for name in MANY.split(",") if name not in PLAIN)


def test_the_picture_each_chart_and_each_text_is_saved_with_its_words(shown):
    """A text with a control character was no SVG that anything could read, and no PNG came."""
    page = shown.page
    unfold_texts(page)
    open_share(page)
    menu = page.locator("#run-link")
    places = [(menu, f"picture-{shown.run.id}", 1), (page.locator("#charts"), None, 3)]
    places += [(page.locator("#panels"), None, len(shown.run.results))]
    for kind, begins in (("SVG", b"<svg "), ("PNG", b"\x89PNG")):
        for place, name, count in places:
            buttons = place.get_by_role("button", name=re.compile(f"(^| as ){kind}$"))
            expect(buttons).to_have_count(count)
            names = set()
            for button in buttons.all():
                with page.expect_download() as saving:
                    button.click()
                names.add(saving.value.suggested_filename)
                content = saving.value.path().read_bytes()
                assert content.startswith(begins)
                if kind == "SVG":
                    words = ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")
                    assert len([*words]) >= 5
            assert len(names) == count
            assert name is None or names == {f"{name}.{kind.lower()}"}
    open_share(page)


def test_what_a_visitor_writes_stays_text(shown):
    assert shown.page.evaluate("window.hacked") is None
    panel(shown.page, "greedy").locator(".prompt .whole").click()
    assert panel(shown.page, "greedy").locator(".prompt").text_content() == HOSTILE
    assert shown.page.locator("#panels img, #panels script").count() == 0
    shown.page.get_by_role("button", name="Environment").click()
    expect(shown.page.locator("#environment")).to_contain_text(
        "${window.hacked=1} {{{window.hacked}}}"
    )
    assert shown.page.evaluate("window.hacked") is None


def test_rejected_drafts_are_shown_and_clean_text_hides_them(shown):
    refused = panel(shown.page, "speculative").locator(".wb-paper .tok.rejected")
    rejected = sum(
        t.fate == "rejected" for r in shown.result("speculative").alone.rounds for t in r.trials
    )
    assert refused.count() == rejected > 0
    expect(refused.first).to_be_visible()
    clean = shown.page.get_by_role("button", name="hide the words that were refused")
    clean.click()
    expect(refused.first).to_be_hidden()
    clean.click()
    assert text_of(shown.page, "speculative") == shown.result("speculative").alone.text
    # All branches of a tree once stood in a row: now the refused ones and a count of the others.
    forks = [
        [t for t in r.trials if t.fate in ("rejected", "discarded")]
        for r in shown.result("dsbd").alone.rounds
    ]
    assert any(len({t.parent for t in tried}) < len(tried) for tried in forks)
    expect(panel(shown.page, "dsbd").locator(".wb-paper .others").first).to_contain_text("+")


def test_the_card_names_what_decided(shown):
    """Nobody saw the random number against its bound, nor the token that a correction replaced."""
    page, card = shown.page, shown.page.locator(".wb-card")
    result = shown.result("speculative").alone
    index = next(i for i, t in enumerate(result.tokens) if t.fate == "corrected")
    refused = [t for t in result.rounds[result.tokens[index].round].trials if t.fate == "rejected"][
        -1
    ]
    panel(page, "speculative").locator(".tok:not(.refused)").nth(index).hover()
    why = card.locator(".why")
    expect(why).to_contain_text("It replaces the guess")
    # once only that it was refused
    expect(why).to_contain_text(f"gave {refused.p:.3f} and the draft {refused.q:.3f}")
    expect(why).to_contain_text("refused")
    expect(card.locator(".toss")).to_have_count(1)
    kept = next(
        i
        for i, t in enumerate(result.tokens)
        if t.fate == "accepted" and 0 < t.accept_probability < 1
    )
    panel(page, "speculative").locator(".tok:not(.refused)").nth(kept).hover()
    token = result.tokens[kept]
    expect(card.locator(".why")).to_have_text(
        f"The random number {token.u:.3f} is below p / q = {token.accept_probability:.3f}: kept."
    )
    pin = card.locator(".needle").evaluate("(pin) => parseFloat(pin.style.left)")
    assert pin == pytest.approx(100 * token.u)
    mtad = shown.result("mtad").alone
    drafted = next((i for i, t in enumerate(mtad.tokens) if t.fate == "accepted"), None)
    if drafted is not None:
        panel(page, "mtad").locator(".tok:not(.refused)").nth(drafted).hover()
        expect(card).to_contain_text("kept above 0.100")
    assert refused.fate == "rejected"


def test_the_cards_bars_have_one_scale(shown):
    """The larger of p and q always filled its bar; the list of likely tokens had a scale to 1."""
    page, result = shown.page, shown.result("speculative").alone
    index = next(i for i, t in enumerate(result.tokens) if t.fate == "accepted")
    panel(page, "speculative").locator(".tok:not(.refused)").nth(index).hover()
    token = result.tokens[index]
    shares = [token.p, token.q, *(other.p for other in token.alternatives)]
    fills = page.locator(".wb-card .track i")
    widths = fills.evaluate_all("(fills) => fills.map((fill) => parseFloat(fill.style.width))")
    assert widths == pytest.approx([100 * max(share, 0.01) for share in shares], rel=1e-3)


def test_a_correction_says_why_each_of_several_guesses_was_refused(visit, address):
    """The card only named them, and a token drawn four times was named four times."""
    run = recorded(id_of("all")).run
    (rounds,) = [r.samples[0].rounds for r in run.results if r.decoder == "specinfer"]
    tried = [(round, t) for round in rounds for t in round.trials if t.fate == "corrected"]
    refused = [
        [t for t in round.trials if t.parent == own.parent and t.fate == "rejected"]
        for round, own in tried
    ]
    several = next(i for i, each in enumerate(refused) if each[0].p and len(names(each)) == 2)
    twice = next(i for i, each in enumerate(refused) if len(each) > 1 == len(names(each)))
    page = visit(f"{address}?run={id_of('all')}", 1400)
    corrected = panel(page, "specinfer").locator(".wb-paper .tok.corrected")
    corrected.nth(several).hover()
    why = page.locator(".wb-card .why")
    one, other = names(refused[several])
    expect(why).to_contain_text(f"It replaces {one}, {other}, which were refused.")
    number = f"{refused[several][0].u:.3f}"
    expect(why).to_contain_text(f"{one}: the random number {number} is not below")
    expect(why).to_contain_text(f"{other}: the accept probability is 0")
    page.mouse.move(0, 0)
    corrected.nth(twice).hover()
    (one,) = names(refused[twice])
    expect(why).to_contain_text(f"It replaces {one}, which was refused.")


def names(trials) -> list[str]:
    """Each token once, as a card writes it."""
    return list(dict.fromkeys(f"“{t.text.replace(' ', '␣')}”" for t in trials))


def test_the_same_position_is_lit_in_all_panels(shown):
    page = shown.page
    panel(page, "speculative").locator(".tok:not(.refused)").nth(3).hover()
    expect(page.locator("#panels .tok.lit")).to_have_count(5)
    page.mouse.move(0, 0)
    expect(page.locator("#panels .tok.lit")).to_have_count(0)


def test_stop_ends_and_keeps_what_there_is(visit, address, server):
    page = visit(
        link(address, "Once", decoders="greedy,speculative", max_new_tokens=400, repeats=100)
    )
    expect(page.locator("#progress")).to_contain_text("token")
    page.get_by_role("button", name="Stop", exact=True).click()
    id = finished(page)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    kept = server[1].store.get(id)
    assert kept.cancelled
    assert len(kept.results) < 200
