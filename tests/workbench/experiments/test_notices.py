"""Notices of a report about rows that cannot be used."""

import pytest

from decoders import InputError
from tests.workbench.experiments.test_items import Place
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.journal import Journal
from workbench.experiments.report import report, table

PLAN = """
[[part]]
name = "timed"
prompts = ["own.txt"]
limit = 3
timings = 2
decoders = ["multinomial"]
"""
DAMAGED = [
    "",
    "null",
    "{}",
    '{"outputs":[]}',
    '{"outputs":[{"prompt":1,"prompt_tokens":3}],"metrics":[]}',
    '{"outputs":[{"prompt":1,"prompt_tokens":3}],"metrics":{"new_tokens":"many"}}',
    '{"outputs":[{"prompt":1,"prompt_tokens":3,"scores":{"score":"good"}}]}',
    '{"outputs":[{"prompt":1,"prompt_tokens":3,"tokens":"ab"}]}',
    '{"outputs":[{"prompt":2,"prompt_tokens":3}],"metrics":{"new_tokens":1}}',  # another prompt's
    "[" * 100_000,
    b"\x00\xff\xfe",
]


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_row_is_named_left_out_and_run_again(place, text):
    """One row that could not be read ended run, resume and report of its experiment in a
    traceback."""
    id = place.run(PLAN)
    place.sql(
        (
            "UPDATE rows SET json = ? WHERE item = 1 AND cell IN (SELECT cell FROM cells WHERE "
            "label = 'multinomial')"
        ),
        text,
    )
    found = report(Journal(place.path), id)
    said = (
        "1 row of the journal cannot be read and is left out (timed, multinomial, prompt 2): "
        "resume the experiment"
    )
    assert said in markdown(found)
    assert [row[:2] for row in table(found, "timed").rows] == [
        ["greedy", "6"],
        ["multinomial", "5"],
    ]
    assert (found.progress.done, found.progress.total) == (5, 6)
    assert all(write(found) for write in WRITERS.values())
    ran = len(place.bench.ran)
    assert place.run(PLAN) == id
    assert [prompts for _, prompts in place.bench.ran[ran:]] == [(1,)]
    found = report(Journal(place.path), id)
    assert (found.progress.done, found.progress.total) == (6, 6)
    assert "cannot be read" not in markdown(found)
    assert [row[:2] for row in table(found, "timed").rows] == [
        ["greedy", "6"],
        ["multinomial", "6"],
    ]


def test_many_damaged_rows_are_counted(place):
    id = place.run(PLAN)
    place.sql("UPDATE rows SET json = substr(json, 2)")
    said = markdown(report(Journal(place.path), id))
    assert (
        "12 rows of the journal cannot be read and are left out (timed, greedy, prompt 1; " in said
    )
    assert "timed, greedy, prompt 2, timing 2; and 7 more)" in said
    place.run(PLAN)
    assert len(place.bench.ran) == 12


def test_an_experiment_whose_request_is_damaged_is_a_sentence(place):
    id = place.run(PLAN)
    place.sql("UPDATE experiments SET request = 'x'")
    with pytest.raises(InputError, match="run its plan again"):
        report(Journal(place.path), id)
    assert place.run(PLAN) == id
    assert report(Journal(place.path), id).progress.done == 6
    assert len(place.bench.ran) == 6
