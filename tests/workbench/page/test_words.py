"""The small texts of the page: plain words, and what others wrote stays text."""

import re
from dataclasses import replace

import pytest

from workbench.models.presets import PAIRS, PairChoice
from workbench.page import words
from workbench.runs.events import At, Started
from workbench.runs.store import recordings


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (1422, "24 min"), (5400, "1.5 h")],
)
def test_time_left_is_as_exact_as_a_guess_is(seconds, says):
    """It once said "1422 s left"."""
    assert words.seconds_left(seconds) == says


def test_what_was_stopped_before_its_first_token_is_no_result(run):
    """It once said "Stopped · 5 results" when one had none."""
    first, *others = run.results
    empty = replace(first.alone, tokens=[], text="", finished="cancelled")
    begun = replace(first.alone, finished="cancelled")
    for sample, count in ((empty, len(others)), (begun, len(run.results))):
        stopped = [*others, replace(first, samples=[sample])]
        shown = words.outcome(replace(run, results=stopped, cancelled=True))
        assert f"Stopped · {count} results ·" in shown


def test_a_date_says_that_it_is_utc_and_a_title_cannot_turn_its_line(run):
    """Nothing said in which zone dates are, and an unclosed override mirrored the line of a run."""
    shown = words.heading("A", replace(run, title="\u202e<b>"))
    assert " UTC · <bdi>\u202e&lt;b&gt;</bdi>" in shown


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_a_recorded_run_says_what_there_is_to_see_and_when_it_was_recorded(recording, run):
    shown = words.source(recording.run)
    assert recording.says.replace("'", "&#x27;") in re.sub("</?button[^>]*>", "", shown)
    assert "Recorded on 20" in shown
    assert words.source(run) == ""


def test_the_pair_in_use_is_named_as_text():
    """The header spoke of two tiny story models whatever pair was loaded."""
    pair = words.introduction(PairChoice("org/<b>big", "org/small"))
    assert "In use: <b>org/&lt;b&gt;big + org/small</b>; small models" in pair
    head = words.introduction(PAIRS["Llama-Stories + head"].choice())
    assert "In use: <b>embedded target + head</b>" in head


def test_the_progress_counts_what_is_done_as_the_bar_does():
    """It promised 15 measurements and made 45."""
    at = At("mtad", 0, 1, "unpadded", job=14, jobs=16, lap=0, laps=3)
    said = words.progress(Started(at))
    assert "MTAD (15 of 16)" in said
    assert "width:87.5%" in said
