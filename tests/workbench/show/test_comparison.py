"""The figures show the quantities of the run, and say so if there is none."""

from dataclasses import replace

import pytest

from decoders import Fate
from workbench.runs.estimates import Row, rows
from workbench.runs.record import Energy, Lap, Run
from workbench.show import comparison


def of(run: Run, decoder: str) -> Row:
    return next(row for row in rows(run.results) if row.decoder == decoder)


def test_bars_are_the_means_and_their_spread(run):
    found = rows(run.results)
    bar = comparison.speed(found).data[0]
    for i, row in enumerate(found):
        speeds = [r.metrics["tokens_per_second"] for r in row.results]
        assert bar.y[i] == pytest.approx(sum(speeds) / 2)
        assert bar.error_y.array[i] == pytest.approx(abs(speeds[0] - speeds[1]) / 2**0.5)


def test_energy_gives_way_to_memory_traffic_under_its_own_name(run):
    unmeasured = [replace(r, energy=Energy(None, "not measured: a test")) for r in run.results]
    measured = comparison.energy(rows(run.results))  # one of the fixture's results is measured
    assert "J/token" in measured.layout.title.text
    assert "memory traffic" in comparison.energy(rows(unmeasured)).layout.title.text


def test_acceptance_by_position_counts_what_was_tested(run):
    row = of(run, "speculative")
    line = comparison.acceptance_by_position([row]).data[0]
    drafted = [t for r in row.results for entry in r.alone.rounds for t in comparison.draft_positions(entry)]
    tested = [(place, fate) for place, fate in drafted if fate != Fate.DISCARDED]
    counts = [text.split(" of ") for text in line.customdata]
    assert sum(int(of) for _, of in counts) == len(tested)
    assert sum(int(kept) for kept, _ in counts) == sum(r.metrics["accepted"] for r in row.results)
    assert list(line.x) == sorted({place for place, _ in tested})


def test_positions_in_a_draft_are_depths(run):
    """A forest of beams has several tokens of one depth; a chain has one each."""
    chain = of(run, "speculative").first.alone.rounds[0]
    assert [place for place, _ in comparison.draft_positions(chain)] == [1, 2, 3, 4]
    forest = of(run, "dsbd").first.alone.rounds[0]
    assert sorted(place for place, _ in comparison.draft_positions(forest)) == [1] * 4 + [2] * 4


def verifying(row: Row) -> float:
    """Milliseconds that the figure shows."""
    return next(bar for bar in comparison.round_times([row]).data if bar.name == "verify").x[0]


def test_time_per_round_is_that_of_the_timings_without_the_first_round(run):
    greedy = of(run, "greedy")
    laps = [
        Lap(1.0, [9.0] * 3, greedy.first.energy, verifying=[9.0, *each]) for each in ((0.002, 0.004), (0.004, 0.006))
    ]
    timed = replace(greedy, results=[replace(greedy.first, laps=laps)], greedy=[None])
    assert verifying(timed) == pytest.approx((2 + 4) / 2)  # each round's quickest


def test_time_per_round_of_an_earlier_version_is_that_of_its_rounds(run):
    greedy = of(run, "greedy")
    untimed = replace(greedy, results=[replace(r, laps=[]) for r in greedy.results])
    seconds = [entry.verify_seconds for r in greedy.results for entry in r.alone.rounds[1:]]
    assert verifying(untimed) == pytest.approx(1e3 * sum(seconds) / len(seconds))


def test_without_drafts_the_figure_says_so(run):
    (words,) = comparison.acceptance_by_position([of(run, "greedy")]).layout.annotations
    assert words.text == "no decoder of this run drafts"


def test_two_runs_stand_in_one_figure_under_their_own_names(run):
    both = [row.named(side) for side in "AB" for row in rows(run.results)]
    bar = comparison.speed(both).data[0]
    assert list(bar.x)[::5] == ["greedy A", "greedy B"]


def test_every_figure_survives_results_without_figures(run):
    failed = [
        replace(r, error="it broke", samples=[replace(r.alone, rounds=[], tokens=[])], metrics=dict.fromkeys(r.metrics))
        for r in run.results
    ]
    whole, broken = comparison.figures(rows(run.results)), comparison.figures(rows(failed))
    assert len(whole) == len(broken) == len(comparison.FIGURES)
    assert not any("NaN" in figure.to_json() for figure in broken)


def test_every_figure_survives_metrics_that_an_older_run_lacks(run):
    """An imported file with `metrics: {}` once gave an error 500 and stayed in the list."""
    bare = rows([replace(r, metrics={}) for r in run.results])
    assert len(comparison.figures(bare)) == len(comparison.FIGURES)
