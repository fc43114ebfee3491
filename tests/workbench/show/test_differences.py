"""Two runs compared: their settings, their texts and their figures."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.workbench.made import UNMEASURED, made_batch
from workbench.runs.figures import Row, rows
from workbench.runs.record import Lap, Run
from workbench.show import view
from workbench.show.quantities import BY_NAME, gives

PIECES = st.lists(st.sampled_from(["a", " b", "<b>", "\n", "🦊", "\u202e"]), max_size=12)


@given(PIECES, PIECES)
def test_parts_are_both_texts_again(a, b):
    found = view.parts(a, b)
    assert "".join(x for x, _ in found) == "".join(a)
    assert "".join(y for _, y in found) == "".join(b)


@given(PIECES)
def test_equal_texts_have_no_marks(a):
    assert "<mark>" not in view.marked(a, a, "A")


def test_what_the_other_lacks_is_marked_on_either_side():
    a, b = ["She", " saw", " a", " dog"], ["She", " had", " a", " dog"]
    assert view.marked(a, b, "A") == "She<mark> saw</mark> a dog"
    assert view.marked(b, a, "B") == "She<mark> had</mark> a dog"


def test_markup_in_a_text_is_text():
    assert view.marked(["<script>"], ["x"], "A") == "<mark>&lt;script&gt;</mark>"


def test_long_texts_are_compared_up_to_where_they_part():
    long = ["a"] * (view.LONGEST + 1)
    assert view.marked([*long, "b"], long, "A") == "a" * len(long) + "<mark>b</mark>"


def other(run: Run, **settings) -> Run:
    return replace(run, id="0e", study={**run.study, "settings": {**run.settings, **settings}})


def test_only_settings_that_differ_are_listed_those_of_a_decoder_by_its_name(run):
    changed = other(run, seed=7, mtad={**run.settings["mtad"], "beams": 2})
    assert view.differing(run, changed).rows == [
        ["seed", "0", "7"],
        ["mtad.beams", "8", "2"],
    ]
    assert view.differing(run, run).rows == []
    assert view.ALIKE in view.settings(run, run)


def test_a_machine_that_differs_is_listed(run):
    elsewhere = replace(run, environment={**run.environment, "device": "<cuda>"})
    assert [row[0] for row in view.differing(run, elsewhere).rows] == ["device"]
    assert "&lt;cuda&gt;" in view.settings(run, elsewhere)


def test_settings_of_a_decoder_that_one_run_lacks_are_not_differences(run):
    fewer = {name: value for name, value in run.settings.items() if name != "mtad"}
    without = replace(run, study={**run.study, "settings": fewer})
    assert view.differing(run, without).rows == []


def timed(row: Row, *seconds: float) -> Row:
    laps = [Lap(s, [], UNMEASURED) for s in seconds]
    return replace(row, results=[replace(row.first, laps=laps)], greedy=[None])


def test_a_ratio_says_which_is_better_only_if_ranges_lie_apart(run):
    row, speed = rows(run.results)[0], BY_NAME["speed"]
    slow, fast, unclear = timed(row, 2.0, 2.02), timed(row, 1.0, 1.01), timed(row, 1.98, 2.04)
    slow, fast, unclear = (
        replace(r, results=[replace(r.first, metrics={**r.first.metrics, "tokens_per_second": v})])
        for r, v in ((slow, 12.0), (fast, 24.0), (unclear, 11.9))
    )
    assert view.ratio(speed, slow, fast) == "2.00× (B is better)"
    assert view.ratio(speed, fast, slow) == "0.50× (A is better)"
    assert view.ratio(speed, slow, unclear).endswith(f"({view.WITHIN})")


def test_texts_that_differ_by_chance_are_not_ranked(run):
    a, b = rows(run.results)[:2]
    found = view.ratio(BY_NAME["perplexity"], a, b)
    assert re.fullmatch(r"\d+\.\d\d×", found)


def test_a_decoder_of_one_run_is_named_and_not_compared(run):
    fewer = replace(run, results=[r for r in run.results if r.decoder != "mtad"])
    text = view.comparisons(fewer, run)
    assert "only in B" in text
    assert text.count('<div class="sides">') == 4
    assert "the same text" in text


def test_a_text_that_both_wrote_stands_there_once(run):
    text = view.comparisons(run, other(run, seed=7))
    assert text.count(f"<h4>{view.BOTH}</h4>") == text.count('<div class="side">') == 5
    tokens = run.results[0].alone.tokens
    shorter = replace(run.results[0].alone, tokens=tokens[:-1])
    changed = replace(run, results=[replace(run.results[0], samples=[shorter]), *run.results[1:]])
    assert view.comparisons(run, changed).count('<div class="side">') == 6


def test_what_was_written_stays_text(run):
    text = view.comparisons(run, other(run, seed=1))
    assert "<script" not in text
    assert "\x1b" in text or "&lt;/script&gt;" in text


def test_results_that_failed_can_be_compared(run):
    broken = replace(run, results=[replace(r, error="it broke", metrics={}) for r in run.results])
    assert view.comparisons(run, broken)


def test_settings_of_batches_are_compared_too():
    made = made_batch()
    assert view.differing(made, other(made, seed=3)).rows == [["seed", "0", "3"]]


@given(st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_ratio_follows_from_the_figures_beside_it(a, b):
    """62% and 64% of drafts stood beside 1.02x."""
    first, second = (
        replace(
            row,
            results=[
                replace(r, metrics=r.metrics | {"acceptance_rate": value}) for r in row.results
            ],
        )
        for row, value in ((rows(made_batch().results)[0], a), (rows(made_batch().results)[1], b))
    )
    _, *cells, ratio = next(
        row for row in view.ratios(first, second).rows if row[0] == "drafts used"
    )
    assert gives(ratio, float(cells[1][:-1]) / float(cells[0][:-1]))
    assert ratio == f"{b / a:.2f}×"
