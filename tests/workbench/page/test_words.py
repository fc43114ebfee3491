"""The small texts of the page: plain words, and what others wrote stays text."""

from dataclasses import replace

import pytest

from workbench.page.parts import words
from workbench.runs.recorded import recordings


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.2, "1 s"), (89, "89 s"), (90, "2 min"), (1422, "24 min"), (5400, "1.5 h")]
)
def test_time_left_is_as_exact_as_a_guess_is(seconds, says):
    """It once said "1422 s left" (P22)."""
    assert words.seconds_left(seconds) == says


def test_one_result_is_not_called_results(run):
    """It once said "1 results" (P22)."""
    one = replace(run, results=run.results[:1])
    assert "· 1 result ·" in words.outcome(one)
    assert "s of computing" in words.outcome(one)


def test_a_date_says_that_it_is_utc_and_a_title_cannot_turn_its_line(run):
    """Nothing said in which zone dates are, and an unclosed override mirrored the line of a run (P21, P22)."""
    shown = words.heading("A", replace(run, title="\u202e<b>"))
    assert " UTC · <bdi>\u202e&lt;b&gt;</bdi>" in shown


@pytest.mark.parametrize("recording", recordings(), ids=lambda each: each.title)
def test_a_recorded_run_says_what_there_is_to_see_and_how_to_have_it_measured_here(recording, run):
    shown = words.source(recording.run)
    assert recording.says.split(":")[0].replace("'", "&#x27;") in shown
    assert "Recorded on 20" in shown
    assert ("Press <b>Measure</b>" if recording.run.kind == "batch" else "Press <b>Run</b>") in shown
    assert words.source(run) == ""
