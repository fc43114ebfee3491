"""Reports on several sets of prompts, on missing scores and on experiments that have just begun."""

import csv
import io
import json
from dataclasses import replace

import pytest

from tests.workbench.experiments.test_report import PLAN
from workbench.experiments import driver
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.report import acceptance, by_category, draw, judged, padding, report

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
[[draw]]
kind = "heat"
part = "two"
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
        lines = [
            json.dumps({"prompt": f"A {name} one", "category": category})
            for category in ("fable", "letter")
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    experiment = prepared(SETS, data=str(tmp_path))
    *_, last = driver.run(experiment, journal, crew)
    assert (last.failed, last.done) == (0, last.total)
    return report(journal, experiment.id)


def test_what_is_of_one_of_several_sets_names_it(two_sets):
    """Tables by category and by place of the draft had a nameless row "speculative" for each set.

    In heat maps the last set took the place of the others."""
    for shown in (
        by_category(two_sets, "two"),
        by_category(two_sets, "two", "tokens/call"),
        acceptance(two_sets, "two"),
        padding(two_sets, "two"),
    ):
        names = [row[0] for row in shown.rows]
        assert len(names) == len(set(names))
        assert {name.rsplit(", ", 1)[1] for name in names} == {"short.jsonl", "long.jsonl"}
    front, heat = (
        figure for drawing in two_sets.plan.drawings for figure in draw(two_sets, drawing)
    )
    for figure in (front, heat):
        assert "speculative, batch 1, short.jsonl" in figure
        assert "speculative, batch 1, long.jsonl" in figure
    assert judged(two_sets)[0].words.startswith("on short.jsonl: tokens/call is 1 with ")


def test_settings_that_no_label_says_are_printed_as_they_were_measured(two_sets):
    """A plan whose settings are those of the pair names none of them."""
    says = "Settings other than the library's defaults: speculative draft_length=3 confidence=0.1."
    assert says in markdown(two_sets)
    cells = [
        replace(c, label=c.label.replace("speculative", "speculative draft_length=3"))
        for c in two_sets.cells
    ]
    assert "speculative draft_length=3 confidence=0.1." in markdown(replace(two_sets, cells=cells))
    later = {"draft_length": 4, "of a later version": 1}
    cells = [replace(c, asked={**c.spec, "settings": later}) for c in two_sets.cells]
    assert "of a later version=1" in markdown(replace(two_sets, cells=cells))


def test_an_output_that_could_not_be_scored_has_its_reason(two_sets):
    """A prediction whose gold query failed had a dash for its score, and nothing said why."""
    why = "the gold query failed: SQLite: no such table: ships"

    def unscored(row):
        return row.with_outputs([replace(o, scores={"why": why}) for o in row.outputs])

    cells = [replace(c, rows={i: unscored(r) for i, r in c.rows.items()}) for c in two_sets.cells]
    found = replace(two_sets, cells=cells)
    assert (
        f"- two, speculative, batch 1, short.jsonl: an output has no score: {why} (2 times)"
        in markdown(found)
    )
    (text,) = WRITERS["csv"](found).values()
    assert {line["why"] for line in csv.DictReader(io.StringIO(text, newline=""))} >= {why}


def test_a_report_of_what_has_only_begun_has_no_empty_tables(prepared, journal):
    """`stories` began with 29 orderings that were "not measured", and ten tables of zeros."""
    experiment = prepared(PLAN)
    journal.begin(
        experiment.id, experiment.plan.title, experiment.request.to_json(), {}, experiment.blocks
    )
    text = markdown(report(journal, experiment.id), charts=True)
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Notes",
        "## Measured on",
    ]
    assert "items done: 0 of" in text
