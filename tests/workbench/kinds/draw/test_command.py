"""`python -m workbench draw`: the same study from a terminal."""

import csv

import pytest

from workbench.runs.record import Run


def test_it_draws_prints_writes_and_keeps(call, store, tmp_path):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    status, out, _ = call(
        "draw", "[bold]ab", "--draws", "12", "--decoders", "multinomial", "dsbd",
        "--max-new-tokens", "4", "--temperature", "0.5",
        *(x for kind, path in files.items() for x in (f"--{kind}", str(path))),
    )  # fmt: skip
    assert status == 0
    run = Run.from_json(files["json"].read_bytes())
    assert (run.kind, run.title, [len(r.samples) for r in run.results]) == (
        "draw",
        "[bold]ab",
        [12, 12],
    )
    assert "multinomial  12 draws" in out
    assert "Plain sampling: " in out
    assert len(list(csv.DictReader(files["csv"].open()))) == 2
    assert store.get(run.id) == run
    assert "multinomial  12 draws" in call("runs", "show", run.id)[1]


def test_draws_with_other_seeds_are_added_to_a_run(call, store):
    call(
        "draw",
        "ab",
        "--draws",
        "12",
        "--decoders",
        "multinomial",
        "--max-new-tokens",
        "4",
        "--temperature",
        "0.5",
    )
    (kept,) = store.list()
    status, out, _ = call("draw", "--again", kept.id)
    assert status == 0
    assert "Seeds 0 to 23." in out
    assert f"kept as run {kept.id}" in out
    status, out, _ = call("draw", "--again", kept.id, "--draws", "30")
    assert status == 0
    assert [(r.seed, len(r.samples)) for r in store.get(kept.id).results] == [
        (0, 12),
        (12, 12),
        (24, 30),
    ]
    assert "multinomial  54 draws" in out
    assert len(store.list()) == 1
    for words, says in (
        (("--again", "ffff"), "There is no run 'ffff'"),
        (("--again", kept.id, "--draws", "5"), "draws must be"),
        (("ab", "--again", kept.id), "combine it with --draws alone"),
        (("--again", kept.id, "--temperature", "1"), "combine it with --draws alone"),
        ((), "Give the text to continue, or --again"),
    ):
        status, _, complaint = call("draw", *words)
        assert (status, says in complaint, complaint.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--draws", "5"), "draws must be"),
        (("--draws", "many"), "draws must be"),
        (("--cache-mb", "none"), "cache_mb must be"),
        (("--repeats", "2"), "leave repeats at 1"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(call, words, says):
    status, _, complaint = call("draw", "ab", *words)
    assert status == 2
    assert says in complaint
    assert complaint.count("\n") == 1
