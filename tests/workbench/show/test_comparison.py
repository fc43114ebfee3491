"""The charts show the quantities of the run, and say so if there is none."""

from dataclasses import replace

import plotly.graph_objects as go
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pairwise import EVERYWHERE
from workbench.runs.figures import Row, rows
from workbench.runs.record import Energy, Lap, Load, Run
from workbench.show import comparison
from workbench.show.quantities import BY_NAME


def of(run: Run, decoder: str) -> Row:
    return next(row for row in rows(run.results) if row.decoder == decoder)


def caption(chart: go.Figure) -> str:
    return chart.layout.title.subtitle.text.replace("<br>", " ")


def every(found: list[Row], asked: dict) -> list[go.Figure]:
    """All charts of a comparison, as the browser gets them."""
    charts = [*comparison.charts(found, asked), *comparison.details(found)]
    assert all(chart.to_json() for chart in charts)
    return charts


def test_energy_has_its_place_and_the_reason_where_nothing_can_be_measured(run):
    """No heading had the word where a machine has no counter."""
    unmeasured = [replace(r, energy=Energy(None, "not measured: a test")) for r in run.results]
    measured = comparison.energy(rows(run.results))  # one of the fixture's results is measured
    assert "Joules per token" in caption(measured)
    chart = comparison.energy(rows(unmeasured))
    assert chart.layout.title.text == "Energy"
    assert caption(chart).startswith("Not measured: a test. Instead: memory read per token. ")
    assert "on an NVIDIA H200, 2026-11-26, the story models: Greedy 0.27" in caption(chart)
    assert all("MB" in text for text in chart.data[0].text)


def test_perplexity_says_that_loops_score_well_and_shows_repetition(run):
    """ "Lower is better" had a medal, which a sentence repeated five times won."""
    first = run.results[0]
    loop = replace(first.alone, tokens=[*first.alone.tokens[:4]] * 5)
    chart = comparison.perplexity(rows([replace(first, samples=[loop])]), run.settings)
    assert "Loops score well" in caption(chart)
    assert chart.data[0].text[0].endswith("· 76%")  # 13 of 17 runs of four tokens


def test_acceptance_by_position_counts_what_was_tested(run):
    row = of(run, "speculative")
    tested, kept = comparison.acceptance(row)
    assert tested.total() == sum(r.metrics["tested"] for r in row.results)
    assert kept.total() == sum(r.metrics["accepted"] for r in row.results)
    line = comparison.acceptance_by_position([row]).data[0]
    assert list(line.y) == [kept[place] / tested[place] for place in line.x]


def test_time_per_round_is_that_of_the_timings_without_the_first_round(run):
    greedy = of(run, "greedy")
    passes = ([9.0, 0.002, 0.004], [9.0, 0.004, 0.006])
    laps = [Lap(1.0, [9.0] * 3, greedy.first.energy, verifying=each) for each in passes]
    timed = replace(greedy, results=[replace(greedy.first, laps=laps)], greedy=[None])
    shown = comparison.round_times([timed]).data[-1].x[0]  # milliseconds
    assert shown == pytest.approx((2 + 4) / 2)  # each round's quickest


def test_charts_mark_what_cannot_be_trusted(run):
    """The table and the bars of speed had ≈; the milliseconds per round and the legend of speeds
    beside perplexities did not."""
    row = of(run, "mtad")
    busy = [
        replace(r, laps=[replace(lap, load=Load(pressure=0.9)) for lap in r.laps])
        for r in row.results
    ]
    doubtful = [replace(row, results=busy)]
    texts = [trace.text[0] for trace in comparison.round_times(doubtful).data]
    texts.append(comparison.speed_against_perplexity(doubtful).data[0].hovertemplate)
    assert all(text.startswith("≈") for text in texts)


def test_chance_is_not_shown_as_a_ranking(run):
    """At T=1 decoders of one law got perplexity 4.9 to 23.0 under "lower is better"."""
    found = rows([*run.results, replace(run.results[0], decoder="multinomial")])
    names = {row.label for row in found if row.decoder in ("speculative", "multinomial")}
    chart = comparison.perplexity(found, run.settings)
    shapes = zip(chart.data[0].y, chart.data[0].marker.pattern.shape, strict=True)
    assert {name for name, shape in shapes if shape} == names
    assert "chance" in caption(chart)
    certain = comparison.perplexity(found, {**run.settings, "temperature": 0.0})
    assert not any(certain.data[0].marker.pattern.shape)
    assert "chance" not in caption(certain)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=50 if EVERYWHERE else 8,
)
@given(seconds=st.floats(-1e100, 1e100), figure=st.floats(-1e100, 1e100))
def test_forged_figures_are_drawn(run, seconds, figure):
    forged = []
    for r in run.results:
        metrics = {name: figure for name in r.metrics if name != "energy_source"}
        laps = [replace(lap, seconds=seconds) for lap in r.laps]
        forged.append(replace(r, metrics=metrics, laps=laps))
    every(rows(forged), run.settings)


def test_results_without_figures_are_drawn(run):
    """An imported file with `metrics: {}` once gave an error 500 and stayed in the list."""
    every(rows([replace(r, metrics={}) for r in run.results]), run.settings)


def test_a_chart_of_ones_own_is_one_function(run, monkeypatch):
    def repeated(found: list[Row]) -> go.Figure:
        return comparison.bars(found, BY_NAME["repetition"], "Mine", "What was said twice.")

    monkeypatch.setattr(comparison, "DETAILS", (*comparison.DETAILS, repeated))
    *_, mine = every(rows(run.results), run.settings)
    assert mine.layout.title.text == "Mine"
    assert [*mine.data[0].y] == [row.label for row in rows(run.results)]


def test_positions_in_a_draft_are_depths(run):
    """A forest of beams has several tokens of one depth; a chain has one each."""
    forest = of(run, "dsbd")
    first = replace(forest.first.alone, rounds=forest.first.alone.rounds[:1])
    places, _ = comparison.acceptance(
        replace(forest, results=[replace(forest.first, samples=[first])])
    )
    assert set(places) == {1, 2}
