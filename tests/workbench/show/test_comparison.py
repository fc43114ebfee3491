"""The figures show the quantities of the run, and say so if there is none."""

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoders import Fate
from workbench.runs.estimates import Row, rows
from workbench.runs.record import Run
from workbench.runs.trace import Energy, Lap, Load
from workbench.show import comparison


def of(run: Run, decoder: str) -> Row:
    return next(row for row in rows(run.results) if row.decoder == decoder)


def test_bars_are_the_means_and_their_spread(run):
    found = rows(run.results)
    for row, bar in zip(found, comparison.speed(found).bars, strict=True):
        speeds = [r.metrics["tokens_per_second"] for r in row.results]
        assert bar.sum == pytest.approx(sum(speeds) / 2)
        assert bar.high - bar.low == pytest.approx(2 * abs(speeds[0] - speeds[1]) / 2**0.5)


def test_energy_gives_way_to_memory_traffic_under_its_own_name(run):
    unmeasured = [replace(r, energy=Energy(None, "not measured: a test")) for r in run.results]
    measured = comparison.energy(rows(run.results))  # one of the fixture's results is measured
    assert measured.title == "J/token"
    assert comparison.energy(rows(unmeasured)).title == "memory read per token"


def test_acceptance_by_position_counts_what_was_tested(run):
    row = of(run, "speculative")
    line = comparison.acceptance(row)
    drafted = [
        t
        for r in row.results
        for entry in r.alone.rounds
        for t in comparison.draft_positions(entry)
    ]
    tested = [(place, fate) for place, fate in drafted if fate != Fate.DISCARDED]
    counts = [re.match(r"(\d+) of (\d+)", text).groups() for text in line.texts.values()]
    assert sum(int(of) for _, of in counts) == len(tested)
    assert sum(int(kept) for kept, _ in counts) == sum(r.metrics["accepted"] for r in row.results)
    assert list(line.shares) == sorted({place for place, _ in tested})


def test_positions_in_a_draft_are_depths(run):
    """A forest of beams has several tokens of one depth; a chain has one each."""
    chain = of(run, "speculative").first.alone.rounds[0]
    assert [place for place, _ in comparison.draft_positions(chain)] == [1, 2, 3, 4]
    forest = of(run, "dsbd").first.alone.rounds[0]
    assert sorted(place for place, _ in comparison.draft_positions(forest)) == [1] * 4 + [2] * 4


def verifying(row: Row) -> float:
    """Milliseconds that the figure shows."""
    return comparison.round_times([row]).bars[0].parts[-1]


def test_time_per_round_is_that_of_the_timings_without_the_first_round(run):
    greedy = of(run, "greedy")
    laps = [
        Lap(1.0, [9.0] * 3, greedy.first.energy, verifying=[9.0, *each])
        for each in ((0.002, 0.004), (0.004, 0.006))
    ]
    timed = replace(greedy, results=[replace(greedy.first, laps=laps)], greedy=[None])
    assert verifying(timed) == pytest.approx((2 + 4) / 2)  # each round's quickest


def test_time_per_round_of_an_earlier_version_is_that_of_its_rounds(run):
    greedy = of(run, "greedy")
    untimed = replace(greedy, results=[replace(r, laps=[]) for r in greedy.results])
    seconds = [entry.verify_seconds for r in greedy.results for entry in r.alone.rounds[1:]]
    assert verifying(untimed) == pytest.approx(1e3 * sum(seconds) / len(seconds))


def test_charts_mark_what_cannot_be_trusted(run):
    """The table and the bars of speed had ≈; the milliseconds per round and the legend of speeds
    beside perplexities did not."""
    row = of(run, "mtad")
    busy = [
        replace(r, laps=[replace(lap, load=Load(pressure=0.9)) for lap in r.laps])
        for r in row.results
    ]
    for laps, before in ((busy, "≈"), ([replace(r, laps=[]) for r in row.results], "")):
        [bar] = comparison.round_times([replace(row, results=laps, greedy=[None] * len(laps))]).bars
        assert re.fullmatch(rf"{before}[\d.]+ \+ {before}[\d.]+", bar.text)
        assert bar.detail.count("≈") == 2 * len(before)
        drawn = comparison.speed_against_perplexity(
            [replace(row, results=laps, greedy=[None] * len(laps))]
        )
        assert re.search(rf">{before}[\d.,]+ tokens/s, perplexity", drawn)


def test_without_drafts_the_figure_says_so(run):
    assert "No decoder of this run drafts." in comparison.acceptance_by_position(
        [of(run, "greedy")]
    )


def test_a_decoder_looks_the_same_in_every_chart(run):
    """Colours once followed the place in the run: a decoder changed its colour in the next run."""
    alone, among = comparison.speed([of(run, "mtad")]), comparison.speed(rows(run.results))
    assert alone.bars[0].look == next(
        bar.look for bar in among.bars if bar.name == alone.bars[0].name
    )


def test_chance_is_not_shown_as_a_ranking(run):
    """At T=1 decoders of one law got perplexity 4.9 to 23.0 under "lower is better"."""
    more = replace(
        run, results=[*run.results, *(replace(r, decoder="multinomial") for r in run.results[:1])]
    )
    found = comparison.perplexity(rows(more.results), run.settings)
    assert {bar.name for bar in found.bars if bar.faint} == {
        of(more, d).label for d in ("speculative", "multinomial")
    }
    assert "chance" in found.says
    certain = comparison.perplexity(rows(more.results), {**run.settings, "temperature": 0.0})
    assert not any(bar.faint for bar in certain.bars)
    assert "chance" not in certain.says


def test_every_chart_is_there_and_names_every_decoder(run):
    text = comparison.charts(rows(run.results), run.settings)
    assert text.count("<figure") == 7
    assert text.count("<tr") == 5 * 5


def test_every_chart_survives_results_without_figures(run):
    failed = [
        replace(
            r,
            error="it broke",
            samples=[replace(r.alone, rounds=[], tokens=[])],
            metrics=dict.fromkeys(r.metrics),
        )
        for r in run.results
    ]
    assert comparison.charts(rows(failed), run.settings).count("<figure") == 7


def test_every_chart_survives_metrics_that_an_older_run_lacks(run):
    """An imported file with `metrics: {}` once gave an error 500 and stayed in the list."""
    bare = rows([replace(r, metrics={}) for r in run.results])
    assert comparison.charts(bare, run.settings).count("<figure") == 7


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
@given(seconds=st.floats(-1e100, 1e100), figure=st.floats(-1e100, 1e100))
def test_forged_figures_are_drawn(run, seconds, figure):
    forged = [
        replace(r, metrics={n: figure for n in r.metrics if n != "energy_source"})
        for r in run.results
    ]
    forged = [replace(r, laps=[replace(lap, seconds=seconds) for lap in r.laps]) for r in forged]
    assert comparison.charts(rows(forged), run.settings).count("<figure") == 7
