"""The one picture, on a page with nothing else: a visitor reads off it what the run says."""

import re
from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from playwright.sync_api import Page, expect

from tests.browser.readable import AXE, CONTRAST, FIND
from tests.pairwise import part
from workbench.kinds.comparison import Comparison
from workbench.measuring import session
from workbench.runs.events import Ended
from workbench.runs.record import Run
from workbench.runs.store import id_of, recorded
from workbench.show import web
from workbench.show.panel import picture
from workbench.studies.settings import Settings

DRAFTED = ("accepted", "rejected", "discarded")
STORY, SUMMARY, ALL, HEAD = (
    recorded(id_of(name)).run for name in ("story", "summary", "all", "head")
)
PROMPT = 'The <img src=x onerror="document.title=1"> hen & her "friends" said that they all'
# Each round as it stands under the lane, from the first on: its tokens' fates and texts, in order.
ROUNDS = """() => {
    const root = document.querySelector("wb-picture"), found = [];
    const press = (name) => root.querySelector(`.bar [aria-label="${name}"]`).click();
    const count = Number(root.dataset.rounds);
    for (let i = 0; i < count; i += 1) press("the round before");
    for (let i = 0; i < count; i += 1) {
        const box = root.querySelector(".closeup");
        const words = [...box.querySelectorAll(".col > .tok, .node:not(.trunk)")];
        found.push({
            tokens: words.map((e) => e.token).filter(Boolean).map((t) => [t.fate, t.text, t.node]),
            drawn: [...box.querySelectorAll(".col:not(.names) > .tok")].map((e) => e.textContent),
            ratios: [...box.querySelectorAll(".ratio polyline")].map((e) => e.classList[0]),
            says: root.querySelector("[aria-live]").textContent,
            passes: Number([...root.querySelectorAll(".number")].at(-1).textContent),
        });
        press("the next round");
    }
    return found;
}"""
# The words of each round in the lane.
LANE = """() => [...[...document.querySelectorAll("wb-picture .lane")].at(-1)
    .querySelectorAll(".round")].map((round) => [...round.querySelectorAll(".tok")].map(
        (e) => [[...e.classList].find((name) => name in Workbench.fates), e.textContent]))"""


def html(run: Run, dark: bool = False, **options) -> str:
    mode = ' class="dark" style="background: #0b0f19"' if dark else ""
    return (
        f'<!doctype html><html lang="en"{mode}><head><title>p</title><meta name="viewport" '
        f'content="width=device-width">{web.head()}</head><body><main>{picture(run, **options)}'
        "</main></body></html>"
    )


@pytest.fixture(scope="module")
def blank(chromium) -> Iterator[Page]:
    errors = []
    context = chromium.new_context(
        viewport={"width": 1080, "height": 900}, reduced_motion="no-preference"
    )
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.clock.install()
    yield page
    context.close()
    assert not errors


@pytest.fixture(scope="module")
def fresh(pair) -> Run:
    """A prompt that nobody has recorded, and that a page could run."""
    asked = {
        "decoders": ["greedy", "speculative", "mtad", "dsbd", "beam_search", "lookup"],
        "max_new_tokens": 12, "temperature": 1.0, "timings": 1, "seed": 3,
    }  # fmt: skip
    study = Comparison(PROMPT, Settings.from_json(asked))
    return next(e.run for e in session.run(pair, study) if isinstance(e, Ended))


def put(page: Page, content: str) -> None:
    page.goto("about:blank")  # what is put into a page that has scripts meets their names
    page.set_content(content)


@pytest.fixture
def draw(blank):
    def draw(run: Run, **options) -> Page:
        put(blank, html(run, **options))
        return blank

    return draw


def of(run: Run, decoder: str):
    return next(r for r in run.results if r.decoder == decoder).alone


def chained(round_) -> bool:
    drafted = [t for t in round_.trials if t.fate in DRAFTED]
    return all(b.parent == a.node for a, b in pairwise(drafted))


def assert_read_off(page: Page, run: Run, decoder: str) -> None:
    """Each round of the lane with guesses has the words, fates and passes that the run has."""
    alone = of(run, decoder)
    assert len(alone.rounds) == int(page.locator("wb-picture").get_attribute("data-rounds"))
    kept = {t.node: t for t in alone.tokens}
    passes = 0
    for shown, round_ in zip(page.evaluate(ROUNDS), alone.rounds, strict=True):
        passes += round_.target_calls
        assert shown["passes"] == passes
        assert shown["says"].startswith(f"Round {round_.index + 1}: ")
        # Beams that draft nothing are seen with the rounds before, and what is drawn twice once.
        nodes = {t.node: t for t in round_.trials}
        if not any(t.fate in DRAFTED for t in round_.trials) and len(round_.trials) > 1:
            assert set(nodes) <= {node for _, _, node in shown["tokens"]}
            continue
        if chained(round_) and not round_.provisional:
            own = [t for t in round_.trials if t.fate not in DRAFTED]
            first = [t for t in round_.trials if t.fate in DRAFTED]
            wanted = [(t.fate, t.node) for t in [*first, *own]]
            assert [(fate, node) for fate, _, node in shown["tokens"]] == wanted
            texts = [kept[t.node].text if kept.get(t.node) and kept[t.node].id == t.token
                     else t.text for t in [*first, *own]]  # fmt: skip
            assert shown["drawn"] == texts
        else:
            assert {node for _, _, node in shown["tokens"]} == set(nodes)
            for fate, _, node in shown["tokens"]:
                assert fate in {t.fate for t in round_.trials if t.node == node}
    assert passes == next(r for r in run.results if r.decoder == decoder).metrics["target_calls"]


CASES = [
    (STORY, "mtad"), (STORY, "dsbd"), (STORY, "beam_search"), (SUMMARY, "lookup"),
    (HEAD, "best_first"), (ALL, "suffix"), (ALL, "traversal"),
]  # fmt: skip
FRESH = ["speculative", "mtad", "dsbd", "beam_search", "lookup"]


@pytest.mark.parametrize(
    ("run", "decoder"),
    part([*CASES, *((None, name) for name in FRESH)]),
    ids=lambda value: getattr(value, "id", value) or "fresh",
)
def test_each_round_is_read_off_the_picture_as_the_run_has_it(run, decoder, draw, request):
    """The one picture showed no guess and no refusal: words that a visitor's own run had refused
    stood nowhere but behind a switch."""
    run = run or request.getfixturevalue("fresh")
    assert_read_off(draw(run, state=decoder), run, decoder)


@pytest.mark.parametrize("decoder", ["speculative", "mtad", "lookup"])
def test_the_lane_has_every_word_of_every_round_in_its_colour(decoder, draw, fresh):
    page, alone = draw(fresh, state=decoder), of(fresh, decoder)
    for words, round_ in zip(page.evaluate(LANE), alone.rounds, strict=True):
        tokens = [t for t in alone.tokens if t.round == round_.index]
        refused = [(t.fate, t.text) for t in round_.trials if t.fate in ("rejected", "discarded")]
        guesses = [(t.fate, t.text) for t in tokens if t.fate == "accepted"]
        own = [(t.fate, t.text) for t in tokens if t.fate != "accepted"]
        assert [tuple(word) for word in words] == [*guesses, *refused, *own]
    page.get_by_role("button", name="hide the words that were refused").click()
    assert page.locator(".lane .struck:visible").count() == 0
    shown = page.locator(".lane").last.locator(".wb-text .tok:visible").all_text_contents()
    assert "".join(shown) == alone.text


def test_what_was_typed_is_text(draw, fresh):
    page = draw(fresh)
    lead = page.locator(".lane .prompt").last
    expect(lead).to_have_text('… her "friends" said that they all')
    lead.get_by_role("button").click()
    assert lead.text_content() == PROMPT


def test_it_plays_from_the_first_guess_to_the_end(draw):
    page = draw(STORY)
    numbers = page.locator(".lane .number")
    assert numbers.all_text_contents() == ["64", "22"]
    # Half a second went by on a busy machine before the first look.
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))
    page.get_by_role("button", name="play", exact=True).evaluate("(button) => button.click()")
    assert numbers.all_text_contents() == ["0", "0"]
    guess = page.locator(".round[data-phase='guess']").last
    page.clock.run_for(50)
    assert guess.locator(".drafted").all_text_contents() == [" loved", " to", " play"]
    expect(guess.locator(".bonus")).to_be_hidden()
    expect(page.locator(".says")).to_have_text("Round 1: the small model guesses “loved to play”.")
    page.clock.run_for(450)
    assert page.locator(".round[data-phase='read']").count() == 2
    page.clock.run_for(550)
    expect(page.locator(".round[data-round='0'] .bonus")).to_be_visible()
    assert numbers.all_text_contents() == ["1", "1"]
    # an entry of the legend comes with its colour
    expect(page.locator(".entry[data-fate='bonus']")).to_be_visible()
    expect(page.locator(".entry[data-fate='corrected']")).to_be_hidden()
    page.clock.run_for(60_000)
    assert numbers.all_text_contents() == ["64", "22"]
    expect(page.locator(".entry[data-fate='corrected']")).to_be_visible()
    assert page.locator("wb-picture.playing").count() == 0
    page.clock.resume()


def test_the_round_that_is_explained_has_a_refusal_with_both_bars(draw):
    """The four pictures took a round with p = 0: “kept with chance 0 / 0.807 = 0%”."""
    page = draw(STORY)
    refused = page.locator(".closeup .col.rejected")
    widths = refused.locator(".chance i").evaluate_all("(bars) => bars.map((b) => b.offsetWidth)")
    assert len(widths) == 2
    assert min(widths) > 2
    ratio = refused.first.locator(".tok").evaluate("(e) => e.token.p / e.token.q")
    mixed = [
        next(t for t in round_.trials if t.fate == "rejected")
        for round_ in of(STORY, "speculative").rounds
        if {"accepted", "rejected", "corrected"} <= {t.fate for t in round_.trials}
    ]
    ratios = [t.p / t.q for t in mixed if t.p > 0.04 and re.search(r"\w", t.text)]
    assert ratio == pytest.approx(min(ratios, key=lambda ratio: abs(ratio - 0.3)))
    expect(page.locator(".closeup .note")).to_contain_text("is not below p / q =")


def test_a_guess_without_a_chance_says_what_cut_it(draw):
    page = draw(STORY)
    page.locator(".round[data-round='5'] .rejected").click()  # p is 0 after top-p
    expect(page.locator(".closeup .col.rejected .cut")).to_contain_text("cut by top-p")
    page.keyboard.press("Escape")


def test_the_joint_ratio_falls_below_its_threshold_where_a_draft_ends(draw):
    page = draw(STORY, state="mtad")
    for shown, round_ in zip(page.evaluate(ROUNDS), of(STORY, "mtad").rounds, strict=True):
        assert shown["ratios"] == [t.fate for t in round_.trials if t.fate in DRAFTED]
    expect(page.locator(".closeup .names")).to_contain_text("threshold 0.1")


def test_a_copy_names_its_source_and_a_head_its_states(draw):
    page = draw(SUMMARY, state="lookup")
    expect(page.locator(".closeup .note")).to_contain_text("Copied from “…")
    copied = page.locator(".closeup .note mark").text_content().strip()
    assert copied
    assert copied in SUMMARY.title
    page = draw(HEAD, state="best_first")
    expect(page.locator(".closeup .states")).to_contain_text("layers 8, 19 and 30 of 30")


def test_a_screen_reader_hears_each_round_of_a_play(draw):
    page = draw(STORY)
    page.evaluate(
        """() => {
            window.heard = [];
            const box = document.querySelector("wb-picture [aria-live='polite']");
            new MutationObserver((changes) => changes.forEach(({ addedNodes }) =>
                addedNodes.forEach((node) => heard.push(node.textContent))))
                .observe(box, { childList: true });
        }"""
    )
    page.get_by_role("button", name="play", exact=True).click()
    page.clock.run_for(60_000)
    heard = page.evaluate("heard")
    rounds = of(STORY, "speculative").rounds
    *each, last = [int(re.match(r"Round (\d+): .+\.$", says)[1]) for says in heard if says]
    assert each == [round_.index + 1 for round_ in rounds]
    assert heard[-1] in heard[:-1], "it rests at a round"
    assert last <= len(rounds)


def test_all_decoders_run_on_one_clock(draw):
    page = draw(STORY)
    page.get_by_role("button", name="all decoders, each at its measured time").click()
    assert page.locator(".lane").count() == len(STORY.results)
    page.get_by_role("button", name="play", exact=True).click()
    page.clock.run_for(4000)
    done = page.locator(".lane.over").evaluate_all("(all) => all.map((e) => e.dataset.decoder)")
    seconds = {r.decoder: min(lap.seconds for lap in r.laps) for r in STORY.results}
    assert done
    assert set(done) == set(sorted(seconds, key=seconds.get)[: len(done)])
    page.clock.run_for(6000)
    assert page.locator(".lane.over").count() == len(STORY.results)


def test_the_keyboard_has_one_stop_and_arrows_inside(draw):
    page = draw(STORY)
    stops = page.evaluate("document.querySelectorAll('wb-picture [tabindex=\"0\"]').length")
    free = page.evaluate(
        "[...document.querySelectorAll('wb-picture :is(button, summary, a, input, .tok, .node)')]"
        ".filter((e) => e.tabIndex >= 0).length"
    )
    assert (stops, free) == (1, 1)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == "play"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == " loved"
    page.keyboard.press("Space")
    assert page.locator("wb-picture.playing").count() == 1
    assert page.evaluate("document.activeElement.ariaLabel") == "pause"
    page.keyboard.press("Space")
    assert page.locator("wb-picture.playing").count() == 0


def test_enter_opens_the_card_of_a_word_and_escape_leads_back(draw):
    page = draw(STORY)
    word = page.locator(".lane .tok.corrected").first
    word.focus()
    page.keyboard.press("Enter")
    card = page.get_by_role("dialog", name="details of a token")
    expect(card).to_contain_text("corrected")
    token = next(t for t in of(STORY, "speculative").tokens if t.fate == "corrected")
    expect(card).to_contain_text(f"{token.p:.3f}")
    expect(card.locator(".wb-branch tbody tr")).to_have_count(len(token.alternatives))
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    assert page.evaluate("document.activeElement.textContent") == token.text


def test_without_motion_the_end_is_there_at_once(chromium):
    context = chromium.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.set_content(html(STORY, play=True))
    page.get_by_role("button", name="play", exact=True).click()
    assert page.locator(".lane .number").all_text_contents() == ["64", "22"]
    expect(page.locator(".closeup .col.rejected")).to_be_visible()
    context.close()


@pytest.mark.parametrize(
    ("width", "state"), part(product([1080, 390], ["all", "", "beam_search"]), 3)
)
def test_it_fits_and_can_be_read(blank, state, width):
    blank.set_viewport_size({"width": width, "height": 844})
    for dark in (False, True):
        put(blank, html(STORY, dark, state=state))
        assert blank.evaluate("document.documentElement.scrollWidth") <= width
        blank.evaluate(AXE)
        assert blank.evaluate(FIND, ["body", CONTRAST if dark else {}]) == []
    put(blank, html(ALL, state=state))
    assert blank.evaluate("document.documentElement.scrollWidth") <= width
    blank.set_viewport_size({"width": 1080, "height": 900})


def test_another_run_takes_its_place_as_gradio_patches_a_page(draw):
    """Gradio set the attribute and then the children, which took the new drawing away: the picture
    was gone after each run of one's own."""
    page = draw(STORY)
    page.evaluate(
        """(shown) => {
            const found = document.querySelector("wb-picture");
            found.setAttribute("data-shown", shown);
            found.replaceChildren(document.createElement("noscript"));
        }""",
        re.search(r"data-shown='([^']*)'", picture(SUMMARY))[1]
        .replace("&#39;", "'").replace("&lt;", "<").replace("&amp;", "&"),
    )  # fmt: skip
    expect(page.locator(".lane .number")).to_have_text(["96", "35"])


def test_it_is_saved_with_its_words(draw):
    page = draw(STORY)
    for kind in ("SVG", "PNG"):
        with page.expect_download() as saving:
            page.get_by_role("button", name=f"save the picture as {kind}").click()
        content = saving.value.path().read_bytes()
        assert saving.value.suggested_filename == f"picture-{STORY.id}.{kind.lower()}"
        if kind == "PNG":
            assert content.startswith(b"\x89PNG")
            continue
        words = re.findall(r"<text[^>]*>([^<]+)</text>", content.decode())
        for decoder in ("greedy", "speculative"):
            assert set(of(STORY, decoder).text.split()) & set(words)
        assert {"friends", "things", "22", "64", "refused"} <= set(words)
