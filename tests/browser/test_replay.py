"""The replay's sentences and boxes agree with the beams of the recorded rounds."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from decoders.trace import KEPT
from tests.browser.actions import open_recorded, panel
from workbench.kinds.comparison.view import run_panels
from workbench.runs.recorded import Recording, id_of, recordings
from workbench.runs.trace import RoundRecord
from workbench.show.sums import gives

RECORDED = [r for r in recordings() if r.run.kind == "comparison"]
# For each round the beams that the replay lists and its sentence.
SAID = """(rounds) => {
    const { line } = Workbench.history(rounds);
    return rounds.map((round) => [Workbench.beams(round, line).map((beam) => beam.node),
        Workbench.sentence(round, round.keep, true)]);
}"""
# The texts that stick out of their boxes.
SPILT = """(frame) => [...frame.querySelectorAll(".node")].flatMap((node) => {
    const box = node.querySelector("rect").getBoundingClientRect();
    return [...node.querySelectorAll("text")].filter((text) => {
        const at = text.getBoundingClientRect();
        return at.left < box.left || at.right > box.right;
    }).map((text) => text.textContent);
})"""


# What the cards of all tokens of a panel say of p, q and p / q, and why they were kept or refused.
CARDS = """(panel) => panel.rounds.flatMap((round) => round.trials.map((token) => {
    const box = document.createElement("div");
    box.append(...Workbench.told(null, { token, place: { panel, round } }).card);
    const own = box.querySelector(":scope > .picture");
    const values = own ? [...own.querySelectorAll(".bar-line .value")] : [];
    const bars = values.map((value) => value.textContent);
    const ratio = [...box.querySelectorAll("dt")].find((name) => name.textContent === "p / q");
    return { bars, ratio: ratio ? ratio.nextSibling.textContent : null,
        why: (box.querySelector(".why") || box).textContent };
}))"""


def beams_after(round_: RoundRecord) -> set[int]:
    """The beams that a round can leave: those kept of its deepest layer."""
    depths: dict[int, int] = {}
    for t in round_.trials:
        if t.fate in KEPT:
            depths[t.node] = depths.get(t.parent, 0) + 1
    return {node for node, depth in depths.items() if depth == max(depths.values())}


def beams_before(round_: RoundRecord) -> set[int]:
    """The beams that a round continues."""
    return {t.parent for t in round_.trials} - {t.node for t in round_.trials}


def replay(page: Page, recording: Recording, width: int = 1400) -> None:
    """Opens the replay of a recorded run's DSBD."""
    page.set_viewport_size({"width": width, "height": 1000})
    open_recorded(page, recording)
    panel(page, "dsbd").get_by_role("button", name="Step through its rounds").click()


def test_the_beams_said_to_be_left_are_those_that_the_next_round_continues(page):
    """A beam accepted before the last layer was said to go on, above the best one in the table."""
    several = 0
    for run in (recording.run for recording in RECORDED):
        for source in run_panels(run):
            shown = json.loads(source)
            rounds = next(r for r in run.results if r.decoder == shown["decoder"]).alone.rounds
            if not rounds[0].provisional:
                continue
            said = page.evaluate(SAID, shown["rounds"])
            for round_, following, (listed, sentence) in zip(
                rounds, rounds[1:], said, strict=False
            ):
                left = set(listed) or beams_after(round_)
                assert beams_before(following) <= left == beams_after(round_)
                count = re.search(r"(\d+) beams? (?:is|are) left", sentence)
                assert count is None or int(count[1]) == len(left)
                several += bool(count)
    assert several


def test_what_a_card_says_is_true_of_the_figures_on_it(page):
    """p 0.538 and q 0.645 stood over p / q = 0.835, but these numbers give 0.834."""
    ratios, compared = 0, 0
    for source in (source for recording in RECORDED for source in run_panels(recording.run)):
        for said in page.evaluate(CARDS, json.loads(source)):
            if said["ratio"]:
                p, q = map(float, said["bars"])
                assert gives(said["ratio"], p / q)
                ratios += 1
            for u, no, bound in re.findall(
                r"random number (\S+) is (not )?below (?:p / q = )?([\d.e-]+\d)", said["why"]
            ):
                assert (float(u) < float(bound)) == (not no)
                compared += 1
            for value, no, bound in re.findall(
                r"(?:joint ratio|p) ([\d.e-]+) is (not )?above ([\d.e-]+\d)", said["why"]
            ):
                assert (float(value) > float(bound)) == (not no)
    assert ratios > 300
    assert compared > 100


def test_a_beam_that_died_is_not_in_the_replay(page):
    panels = map(json.loads, run_panels(RECORDED[0].run))
    rounds = next(shown["rounds"] for shown in panels if shown["decoder"] == "dsbd")
    said = page.evaluate(SAID, rounds)
    died = next(i for i, (_, sentence) in enumerate(said) if "1 beam is left" in sentence)
    replay(page, RECORDED[0])
    for _ in range(died):
        page.get_by_label("next round").click()
    expect(page.locator(".wb-replay .sentence")).to_contain_text("1 beam is left")
    expect(page.locator(".wb-replay .beam-table")).to_have_count(0)


@pytest.mark.parametrize(("name", "width"), [("story", 1400), ("forest", 390)])
def test_the_numbers_stay_in_their_boxes(page, name, width):
    """p, q and the joint ln p of a draft stuck out of its box at both sides."""
    recording = next(r for r in RECORDED if r.run.id == id_of(name))
    replay(page, recording, width)
    for _ in next(r for r in recording.run.results if r.decoder == "dsbd").alone.rounds[1:]:
        assert page.locator(".wb-replay .tree").evaluate(SPILT) == []
        page.get_by_label("next round").click()
    assert page.locator(".wb-replay .tree").evaluate(SPILT) == []


# Taken at one moment: the page may be scrolling.
BESIDE = """(own) => [...document.querySelectorAll("#panels .wb-panel")]
    .map((box) => [box.dataset.decoder, box.getBoundingClientRect().top])
    .filter(([, top]) => Math.abs(top - own.getBoundingClientRect().top) < 1)
    .map(([decoder]) => decoder)"""
BETWEEN = (
    "(above, below) => below.getBoundingClientRect().top - above.getBoundingClientRect().bottom"
)


@pytest.mark.parametrize(("width", "height"), [(900, 1000), (390, 844), (900, 3600)])
def test_what_opens_from_a_panel_stands_under_its_row(page, width, height):
    """Table and replay opened below the last of all panels, screens away from their own panel."""
    page.set_viewport_size({"width": width, "height": height})
    open_recorded(page, RECORDED[0])
    own = panel(page, "greedy")
    for opener, section in (
        (own.locator(".wb-paper > .wb-text > .tok").first, page.locator(".wb-branch")),
        (own.get_by_role("button", name="Step through its rounds"), page.locator(".wb-replay")),
    ):
        opener.scroll_into_view_if_needed()
        row, scrolled = own.evaluate(BESIDE), page.evaluate("scrollY")
        opener.click()
        expect(section.locator("h3")).to_be_focused()
        expect(section.locator("h3")).to_be_in_viewport()
        under = section.element_handle()
        assert 0 <= own.evaluate(BETWEEN, under) <= 40
        assert own.evaluate(BESIDE) == row
        if width > 640:  # panels of another row stand under it
            assert "dsbd" not in row
            assert section.evaluate(BETWEEN, panel(page, "dsbd").element_handle()) >= 0
        if height == 3600:  # it was in view at once
            assert page.evaluate("scrollY") == scrolled
        page.keyboard.press("Escape")
        expect(section).to_have_count(0)


def test_another_panels_replay_leaves_its_opener_where_it_is(page):
    """The parts above disappear then, and everything below would jump."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    open_recorded(page, RECORDED[0])
    panel(page, "greedy").get_by_role("button", name="Step through its rounds").click()
    expect(page.locator(".wb-replay h3")).to_contain_text("Greedy")
    opener = panel(page, "mtad").get_by_role("button", name="Step through its rounds")
    opener.evaluate(
        "(button) => scrollBy({ top: button.getBoundingClientRect().top - 300, behavior: "
        "'instant' })"
    )
    assert abs(opener.bounding_box()["y"] - 300) < 2
    opener.click()
    expect(page.locator(".wb-replay h3")).to_contain_text("MTAD")
    assert abs(opener.bounding_box()["y"] - 300) < 2


# For each round, each token that it tried: its fate, and what its card says a head made it of.
SAW = """(panel) => panel.rounds.map((round) => round.trials.map((token) => {
    const box = document.createElement("div");
    box.append(...Workbench.told(null, { token, place: { panel, round } }).card);
    const saw = box.querySelector(".saw");
    return [token.fate, saw && saw.textContent];
}))"""


def test_a_card_tells_what_a_head_made_a_token_of(page):
    """Which states, and at which step of the draft; nothing where no head drafted."""
    (head,) = [each for each in RECORDED if each.title == "A head drafts"]
    panels = {shown["decoder"]: shown for shown in map(json.loads, run_panels(head.run))}
    deepest = 0
    for shown, said in zip(
        panels["best_first"]["rounds"], page.evaluate(SAW, panels["best_first"]), strict=True
    ):
        parents = {trial["node"]: trial["parent"] for trial in shown["trials"]}
        for trial, (fate, saw) in zip(shown["trials"], said, strict=True):
            if fate not in ("accepted", "rejected"):
                assert saw is None
                continue
            step, at = 1, trial["parent"]
            while at in parents:
                step, at = step + 1, parents[at]
            assert saw.startswith(f"Step {step} of the draft: the head worked from ")
            own = "the large model’s own state (its layers 2, 5 and 7 of 8)"
            assert (own in saw) == (step == 1)
            assert (f"its own state at step {step - 1} and its guess" in saw) == (step > 1)
            deepest = max(deepest, step)
    assert deepest > 2
    for other in (panels["lookup"], panels["speculative"]):
        assert not any(saw for round_ in page.evaluate(SAW, other) for _, saw in round_)
