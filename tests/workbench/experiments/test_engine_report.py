"""The report on engines: the table of loads, the best draft length as a flag, energy."""

from tests.workbench.experiments.loads import kept, load
from workbench.experiments.engine_report import engine_facts, engines
from workbench.experiments.journal import Progress
from workbench.experiments.plan_file import parse
from workbench.experiments.report import Report
from workbench.experiments.section import Figure, as_html, as_markdown
from workbench.runs.trace import Energy
from workbench.show.tables import Table

PLAN = """
[[engine]]
start = "fast"
draft_lengths = [0, 2]
concurrency = [1, 4]
about = "Which length <pays>?"
costs = { prompt = 3, draft = 0.1, token = 0.05 }
"""
FLAG = """--speculative-config '{"num_speculative_tokens": 2}'"""


def report(*cells, plan=PLAN, **environment) -> Report:
    now = Progress("ab", "x", "2026-11-26", 1, 1, 0, False, False, None, "")
    return Report("x-ab", parse(plan, "x.toml"), now, environment, cells)


def cell(length, size, *seconds, energy=None, **drafts):
    """A load of two requests, timed as often as there are seconds."""
    meter = {} if energy is None else {"energy": Energy(energy, "CPU package (RAPL)")}
    flag = FLAG if length else ""
    loads = [load([[s / 2, s], [s / 2, s]], flag=flag, **drafts, **meter) for s in seconds]
    return kept(*loads, length=length, size=size)


CELLS = (
    cell(0, 1, 1.0, 1.1, 1.2), cell(2, 1, 0.5, 0.6, 0.55, drafted=4, accepted=2, verifications=2),
    cell(0, 4, 0.5, 0.5, 0.6), cell(2, 4, 0.4, 0.7, 0.45, drafted=4, accepted=2, verifications=2),
)  # fmt: skip


def tables(found) -> list[Table]:
    return [each for each in engines(found) if isinstance(each, Table)]


def test_each_load_is_a_row_with_its_place():
    _, loads = tables(report(*CELLS))
    assert loads.heads[:4] == ["engine", "draft length", "concurrency", "timings"]
    assert [row[:4] for row in loads.rows] == [
        ["fast", length, size, "3"] for size in "14" for length in "02"
    ]
    columns = dict(zip(loads.heads, zip(*loads.rows, strict=True), strict=True))
    assert columns["acceptance length"] == ("–", "2", "–", "2")
    assert columns["tokens/s"][0].startswith("5.45 (")


def test_the_best_length_is_printed_as_its_flag_and_an_unclear_one_is_called_so():
    found = report(*CELLS)
    best, _ = tables(found)
    (alone, loaded) = best.rows
    assert alone[:3] == ["fast", "1", "2"]
    assert [f"fast, concurrency 1, 4: {FLAG}"] in engines(found)
    assert alone[4].startswith("2 (")
    assert "unclear" not in alone[4]
    assert loaded[4].endswith(", unclear")


def test_few_timings_make_nothing_clear():
    best, _ = tables(report(cell(0, 1, 1.0, 1.0), cell(2, 1, 0.5, 0.5)))
    assert best.rows[0][2] == "2, unclear"
    assert best.rows[0][4] == "2, unclear"


def test_where_nothing_drafted_is_best_there_is_no_flag():
    found = report(cell(0, 1, 0.5, 0.5, 0.5), cell(2, 1, 1.0, 1.0, 1.0))
    best, _ = tables(found)
    assert best.rows[0][2:] == ["0", "12", "–"]
    assert ["fast, concurrency 1: no flag"] in engines(found)


def test_a_choice_is_unclear_also_where_nothing_drafted_is_best_or_two_lengths_tie():
    """Only a draft was compared, and only with no draft.

    So length 0, timed once or best by noise, and the first of two equal lengths seemed certain."""
    for cells in (
        [cell(0, 1, 0.5), cell(2, 1, 1.0)],
        [cell(0, 1, 0.5, 0.8, 0.5), cell(2, 1, 0.6, 0.6, 0.7)],
    ):
        best, _ = tables(report(*cells))
        assert best.rows[0][2] == "0, unclear"
    tied = [cell(0, 1, 1.0, 1.0, 1.0), cell(2, 1, 0.5, 0.5, 0.5), cell(3, 1, 0.5, 0.5, 0.5)]
    best, _ = tables(report(*tied, plan=PLAN.replace("[0, 2]", "[0, 2, 3]")))
    assert best.rows[0][2] == "2, unclear"
    assert best.rows[0][4] == "2"


def test_with_one_length_there_is_nothing_to_choose():
    assert len(tables(report(cell(2, 1, 1.0)))) == 1
    running = PLAN.replace("start", "name").replace("draft_lengths = [0, 2]\n", "")
    (loads,) = tables(report(cell(None, 1, 1.0), plan=running))
    assert loads.heads[:2] == ["engine", "concurrency"]


def test_energy_is_measured_or_has_its_reason_and_its_parts_are_called_estimated():
    assert "Energy: not measured: no meter." in engines(report(*CELLS))
    drafts = {"drafted": 4, "accepted": 2, "verifications": 2}
    found = report(cell(0, 1, 1.0, energy=30.0), cell(2, 1, 1.0, energy=15.0, **drafts))
    *_, energy = tables(found)
    assert energy.heads[3:6] == ["J of a load", "J/token", "J/accepted token"]
    assert [head for head in energy.heads if "estimated" in head] == energy.heads[6:]
    assert [row[3:6] for row in energy.rows] == [["30", "5", "–"], ["15", "2.5", "7.5"]]
    assert any("Parts are estimated" in each for each in engines(found) if isinstance(each, str))
    without = PLAN.replace("costs =", "# costs =")
    *_, energy = tables(report(cell(0, 1, 1.0, energy=30.0), plan=without))
    assert energy.heads[-1] == "J/accepted token"


def test_the_chart_has_a_line_for_each_length():
    (chart,) = [each for each in engines(report(*CELLS)) if isinstance(each, Figure)]
    assert "draft length 0" in chart.markup
    assert "draft length 2" in chart.markup


def test_a_plan_may_draw_engines_too():
    drawn = (
        '[[draw]]\nkind = "curve"\npart = "fast"\nx = "draft_length"\ny = ["accepted/drafted"]\n'
    )
    charts = [e for e in engines(report(*CELLS, plan=PLAN + drawn)) if isinstance(e, Figure)]
    assert len(charts) == 2
    assert "accepted/drafted by draft length" in charts[1].markup


def test_what_servers_say_is_text():
    facts = {"name": "fast", "kind": "vllm", "version": "<b>1</b>", "model": "m", "flags": "",
             "generator": "this workbench", "host": "here", "started": True}  # fmt: skip
    found = report(*CELLS, engines=[facts])
    assert engine_facts(found) == [
        (
            "engine fast",
            "vllm <b>1</b>; serves m; started for this plan; load by this workbench, on here",
        )
    ]
    html = as_html(engines(found))
    assert "Which length &lt;pays&gt;?" in html
    assert "<pays>" not in html
    assert FLAG in as_markdown(engines(found))


def test_before_the_first_load_there_is_no_section():
    assert engines(report(kept(length=0))) == []
