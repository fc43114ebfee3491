"""The replay says of beams, and shows in its boxes, what the recorded rounds hold."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from decoders.trace import KEPT
from tests.browser.actions import open_recorded, panel
from workbench.runs.recorded import Recording, id_of, recordings
from workbench.runs.trace import RoundRecord
from workbench.show.strip import run_panels

RECORDED = [r for r in recordings() if r.run.kind == "comparison"]
# For each round the beams that the replay lists and its sentence.
SAID = """(rounds) => {
    const { line } = Workbench.history(rounds);
    return rounds.map((round) => [Workbench.beams(round, line).map((beam) => beam.node), Workbench.sentence(round, round.keep, true)]);
}"""
# The texts that stick out of their boxes.
SPILT = """(frame) => [...frame.querySelectorAll(".node")].flatMap((node) => {
    const box = node.querySelector("rect").getBoundingClientRect();
    return [...node.querySelectorAll("text")].filter((text) => {
        const at = text.getBoundingClientRect();
        return at.left < box.left || at.right > box.right;
    }).map((text) => text.textContent);
})"""


def beams_after(round_: RoundRecord) -> set[int]:
    """The beams that a round can leave: what was kept of its deepest layer."""
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
    """A beam accepted in an earlier layer than the last was said to go on, and stood in the table of beams above the best one."""
    several = 0
    for run in (recording.run for recording in RECORDED):
        for source in run_panels(run):
            shown = json.loads(source)
            rounds = next(r for r in run.results if r.decoder == shown["decoder"]).alone.rounds
            if not rounds[0].provisional:
                continue
            said = page.evaluate(SAID, shown["rounds"])
            for round_, following, (listed, sentence) in zip(rounds, rounds[1:], said, strict=False):
                left = set(listed) or beams_after(round_)
                assert beams_before(following) <= left == beams_after(round_)
                count = re.search(r"(\d+) beams? (?:is|are) left", sentence)
                assert count is None or int(count[1]) == len(left)
                several += bool(count)
    assert several


def test_a_beam_that_died_is_not_in_the_replay(page):
    replay(page, RECORDED[0])
    for _ in range(3):
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
