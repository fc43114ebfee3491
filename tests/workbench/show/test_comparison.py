"""The figures show the numbers of the run, and say what there is none of."""

import dataclasses

import pytest

from decoders import Fate
from workbench.measuring.gauges import Energy
from workbench.show import comparison as charts
from workbench.show.quantities import by_decoder


def test_bars_are_the_means_and_their_spread(run):
    figure = charts.speed(run.results)
    bar = figure.data[0]
    for i, group in enumerate(by_decoder(run.results).values()):
        speeds = [r.metrics["tokens_per_second"] for r in group]
        assert bar.y[i] == pytest.approx(sum(speeds) / 2)
        assert bar.error_y.array[i] == pytest.approx(abs(speeds[0] - speeds[1]) / 2**0.5)


def test_energy_gives_way_to_memory_traffic_under_its_own_name(run):
    unmeasured = [dataclasses.replace(r, energy=Energy(None, "not measured: a test")) for r in run.results]
    assert "J/token" in charts.energy(run.results).layout.title.text  # one of the fixture's results is measured
    assert "memory traffic" in charts.energy(unmeasured).layout.title.text


def test_acceptance_by_position_counts_what_was_looked_at(run):
    results = [r for r in run.results if r.decoder == "speculative"]
    figure = charts.acceptance_by_position(results)
    drafted = [t for r in results for entry in r.rounds for t in charts.draft_positions(entry)]
    tested = [(place, fate) for place, fate in drafted if fate != Fate.DISCARDED]
    assert sum(int(text.split(" of ")[1]) for text in figure.data[0].customdata) == len(tested)
    assert sum(int(text.split(" of ")[0]) for text in figure.data[0].customdata) == sum(
        r.metrics["accepted"] for r in results
    )
    assert list(figure.data[0].x) == sorted({place for place, _ in tested})


def test_positions_in_a_draft_are_depths(run):
    """A forest of beams has several tokens of one depth; a chain has one each."""
    chain = next(r for r in run.results if r.decoder == "speculative").rounds[0]
    assert [place for place, _ in charts.draft_positions(chain)] == [1, 2, 3, 4]
    forest = next(r for r in run.results if r.decoder == "dsbd").rounds[0]
    assert sorted(place for place, _ in charts.draft_positions(forest)) == [1] * 4 + [2] * 4


def test_time_a_round_leaves_the_first_out(run):
    greedy = [r for r in run.results if r.decoder == "greedy"]
    verify = next(bar for bar in charts.round_times(greedy).data if bar.name == "verify")
    seconds = [entry.verify_seconds for r in greedy for entry in r.rounds[1:]]
    assert verify.x[0] == pytest.approx(1e3 * sum(seconds) / len(seconds))


def test_every_figure_survives_results_without_figures(run):
    failed = [
        dataclasses.replace(r, error="it broke", rounds=[], metrics=dict.fromkeys(r.metrics)) for r in run.results
    ]
    assert len(charts.figures(failed)) == len(charts.figures(run.results)) == len(charts.FIGURES)
