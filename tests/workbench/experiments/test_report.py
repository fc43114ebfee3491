"""Reports: tables, the papers' figures beside ours, orderings, and files that do no harm."""

import csv
import io
import json
from dataclasses import replace

import pytest

from decoders import InputError
from workbench.experiments import driver
from workbench.experiments import plan as plans
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.report import (
    SIGNS,
    WRITERS,
    beside,
    by_category,
    draw,
    judged,
    markdown,
    orderings_html,
    report,
    shipped,
    table,
)
from workbench.experiments.workers import Crew, InProcess

PLAN = """
title = "A <b>plan</b>"
notes = ["Mind the | gap."]
[[part]]
name = "decoders"
limit = 4
max_new_tokens = 12
decoders = ["speculative", { name = "mtad", threshold = [0.0, 0.5, 1.0] }]
[[part]]
name = "batches"
limit = 4
max_new_tokens = 6
decoders = ["speculative"]
batch_sizes = [1, 2]
schemes = ["vanilla", "unpadded"]
[[draw]]
kind = "front"
part = "decoders"
x = "tokens/s"
y = ["perplexity"]
[[draw]]
kind = "curve"
part = "decoders"
x = "threshold"
y = ["tokens/call", "score"]
[[ordering]]
says = "MTAD drafts more at threshold 0"
source = "a paper"
part = "decoders"
figure = "tokens/call"
less = "mtad threshold=1.0"
than = "mtad threshold=0.0"
[[ordering]]
says = "The other way round"
source = "a paper"
part = "decoders"
figure = "tokens/call"
less = "mtad threshold=0.0"
than = "mtad threshold=1.0"
[[ordering]]
says = "Nobody measured this"
source = "a paper"
part = "decoders"
figure = "score"
less = "greedy"
than = "speculative"
[[printed]]
source = "a paper's table 4"
pair = "Llama <13B>"
prompts = "ChatGPT"
device = "L40"
columns = ["perplexity", "J/token"]
rows = { speculative = [3.64, ""], nobody = [1.0, 2.0] }
"""


@pytest.fixture(scope="module")
def found(device, tmp_path_factory):
    journal = Journal(tmp_path_factory.mktemp("report") / "experiments.sqlite")
    with Crew(InProcess(device)) as crew:
        experiment = driver.prepare(ExperimentRequest(PLAN, "small.toml"), crew)
        *_, last = driver.run(experiment, journal, crew)
    assert (last.failed, last.done) == (0, last.total)
    return report(journal, experiment.id)


def test_a_table_has_a_row_for_each_cell_and_only_figures_that_there_are(found):
    shown = table(found, "decoders")
    assert shown.heads == ["decoder", "items", "tokens/s", "x greedy", "perplexity", "tokens/call",
        "accepted/tested", "accepted/drafted", "MB cache"]  # fmt: skip
    assert [row[:2] for row in shown.rows] == [
        ["greedy", "4"], ["speculative", "4"], ["mtad threshold=0.0", "4"],
        ["mtad threshold=0.5", "4"], ["mtad threshold=1.0", "4"],
    ]  # fmt: skip
    assert shown.rows[0][3] == "1"
    assert " to " in shown.rows[1][3]


def test_the_papers_figures_stand_beside_ours(found):
    shown = beside(found, found.plan.printed[0])
    assert shown.rows[0][:2] == ["speculative", "3.64"]
    assert float(shown.rows[0][2]) > 1
    assert shown.rows[0][3:] == ["–", "–"]
    assert shown.rows[1] == ["nobody", "1", "–", "2", "–"]


def test_orderings_are_judged_one_by_one(found):
    assert [j.verdict for j in judged(found)] == ["reproduced", "not reproduced", "not measured"]
    assert judged(found)[0].words.startswith('tokens/call is 1 with "mtad threshold=1.0" and ')


def test_markdown_and_html_hold_everything_and_escape_it(found):
    page = WRITERS["html"](found)
    assert "A &lt;b&gt;plan&lt;/b&gt;" in page
    assert "<b>plan" not in page
    assert "Llama &lt;13B&gt;" in page
    assert "default-src 'none'" in page
    assert page.count('class="plotly-graph-div"') == 2  # nothing has a score
    text = markdown(found)
    assert "| speculative |" in text
    assert "3 orderings of the papers: 1 reproduced, 1 not reproduced, 1 not measured." in text
    reproduced = "- ✓ MTAD drafts more at threshold 0 (a paper). Here tokens/call is 1 with "
    assert f"Reproduced (1):\n\n{reproduced}" in text
    assert f"- experiment: {found.progress.id}" in text


def test_a_front_has_a_point_with_its_intervals_for_each_cell_the_highest_first(found):
    drawing = found.plan.drawings[0]
    [front] = draw(found, replace(drawing, title="<b> & co"))
    assert front.layout.title.text == "&lt;b&gt; &amp; co"
    assert sorted(trace.name for trace in front.data) == sorted(
        cell.label for cell in found.of_part("decoders")
    )
    heights = [trace.y[0] for trace in front.data]
    assert heights == sorted(heights, reverse=True)
    for trace in front.data:
        cell = next(c for c in found.of_part("decoders") if c.label == trace.name)
        for name, at, bars in (
            ("tokens/s", trace.x, trace.error_x), ("perplexity", trace.y, trace.error_y),
        ):  # fmt: skip
            interval = found.figure(name, cell)
            assert at[0] == interval.value
            assert at[0] - bars.arrayminus[0] == pytest.approx(interval.low)
            assert at[0] + bars.array[0] == pytest.approx(interval.high)


def test_a_curve_has_a_line_over_the_setting_and_levels_for_decoders_without_it(found):
    [curve] = draw(found, found.plan.drawings[1])  # nothing has a score
    lines = {trace.name: trace for trace in curve.data}
    assert list(lines) == ["mtad", "greedy", "speculative"]
    assert lines["mtad"].x == (0.0, 0.5, 1.0)
    assert len(lines["mtad"].error_y.array) == 3
    assert lines["greedy"].x == (0.0, 1.0)
    assert (lines["greedy"].y, lines["greedy"].line.dash) == ((1.0, 1.0), "dot")


def test_csv_has_a_line_for_each_row_and_no_formula(found):
    cell = next(c for c in found.cells if c.label == "speculative")
    first = cell.rows[0]
    hostile = replace(first, samples=[replace(first.alone, text="=1+1\nx")])
    cells = [replace(c, rows={**c.rows, 0: hostile}) if c is cell else c for c in found.cells]
    text = WRITERS["csv"](replace(found, cells=cells))
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(lines) == sum(len(c.rows) for c in found.cells)
    assert next(x for x in lines if x["label"] == "speculative")["text"] == "'=1+1\nx"
    assert json.loads(lines[-1]["settings"])["draft_length"] == 4


def test_a_report_of_half_an_experiment_and_of_none(prepared, journal, crew):
    experiment = prepared(PLAN)
    happening = driver.run(experiment, journal, crew)
    while next(happening).done < 1:
        pass
    happening.close()
    half = report(journal, experiment.id)
    assert half.progress.done < half.progress.total
    text = markdown(half)
    assert "3 orderings of the papers: 2 undecided, 1 not measured yet." in text
    assert "Nobody measured this" not in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## The papers' orderings", "## Decoders", "## Beside the papers",
        "## What the figures mean", "## Notes", "## Measured on",
    ]  # fmt: skip
    assert WRITERS["html"](half)
    with pytest.raises(InputError, match="There is no experiment"):
        report(journal, "nothing")


def test_an_experiment_that_is_run_again_is_drawn_as_its_plan_says_now(prepared, journal, crew):
    for title in ("Before", "After"):
        experiment = prepared(PLAN.replace("A <b>plan</b>", title), limit=1)
        *_, last = driver.run(experiment, journal, crew)
        assert (last.title, report(journal, experiment.id).plan.title) == (title, title)
    assert len(journal.experiments()) == 1


SETS = """
[[part]]
name = "two"
prompts = ["short.jsonl", "long.jsonl"]
max_new_tokens = 4
decoders = [{ name = "speculative", draft_length = 3, confidence = 0.1 }]
batch_sizes = [1, 2]
schemes = ["vanilla", "unpadded"]
[[draw]]
kind = "front"
part = "two"
x = "tokens/s"
y = ["perplexity"]
[[ordering]]
says = "Speculation needs fewer passes"
source = "a paper"
part = "two"
figure = "tokens/call"
less = "greedy, batch 1"
than = "speculative, batch 1"
"""


@pytest.fixture
def two_sets(prepared, journal, crew, tmp_path):
    """A report of a part with two sets of prompts, each with categories."""
    for name in ("short", "long"):
        asked = [{"prompt": f"A {name} one", "category": kind} for kind in ("fable", "letter")]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, asked)))
    experiment = prepared(SETS, data=str(tmp_path))
    *_, last = driver.run(experiment, journal, crew)
    assert (last.failed, last.done) == (0, last.total)
    return report(journal, experiment.id)


def test_what_is_of_one_of_several_sets_names_it(two_sets):
    """Tables by category had a nameless row "speculative" for each set."""
    for shown in (
        by_category(two_sets, "two", "x greedy"),
        by_category(two_sets, "two", "tokens/call"),
    ):
        names = [row[0] for row in shown.rows]
        assert len(names) == len(set(names))
        assert {name.rsplit(", ", 1)[1] for name in names} == {"short.jsonl", "long.jsonl"}
    [front] = (figure for drawing in two_sets.plan.drawings for figure in draw(two_sets, drawing))
    points = {trace.name for trace in front.data}
    assert points >= {f"speculative, batch 1, {name}.jsonl" for name in ("short", "long")}
    assert judged(two_sets)[0].words.startswith("on short.jsonl: tokens/call is 1 with ")


def test_settings_that_no_label_says_are_printed_as_they_were_measured(two_sets):
    """A plan whose settings are those of the pair names none of them."""
    says = "Settings other than the library's defaults: speculative draft_length=3 confidence=0.1."
    assert says in markdown(two_sets)


def test_an_output_that_could_not_be_scored_has_its_reason(two_sets):
    """A prediction whose gold query failed had a dash for its score, and nothing said why."""
    why = "the gold query failed: SQLite: no such table: ships"

    def unscored(row):
        return replace(row, samples=[replace(o, scores={"why": why}) for o in row.samples])

    cells = [replace(c, rows={i: unscored(r) for i, r in c.rows.items()}) for c in two_sets.cells]
    found = replace(two_sets, cells=cells)
    says = f"- two, speculative, batch 1, short.jsonl: an output has no score: {why} (2 times)"
    assert says in markdown(found)
    text = WRITERS["csv"](found)
    assert {line["why"] for line in csv.DictReader(io.StringIO(text, newline=""))} >= {why}


def test_they_are_those_of_the_plan():
    found = shipped()
    wanted = [(o.says, o.source) for o in plans.find(found.plan).orderings]
    assert sorted((f.says, f.source) for f in found.found) == sorted(wanted)
    assert {f.verdict for f in found.found} <= set(SIGNS)


def test_a_text_in_them_stays_text():
    found = shipped()
    forged = replace(found, pair="<i>", found=(replace(found.found[0], says="<img>"),))
    assert "<img>" not in orderings_html(forged)
    assert "<i>" not in orderings_html(forged)
