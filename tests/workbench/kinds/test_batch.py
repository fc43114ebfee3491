"""A batch: its study, its tab, its command."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from decoders import InputError
from tests.workbench.page.visitor import Visitor
from workbench.kinds.batch import Batch
from workbench.page.host import Host
from workbench.runs.record import Run
from workbench.runs.store import new_id


@pytest.mark.parametrize(("prompts", "settings", "says"), [
    ({}, {"sizes": [0]}, "A batch size must be a whole number from 1"),
    ({}, {"sizes": []}, "choose at least one of each"),
    ({}, {"sizes": 3}, "`sizes` must be a list"),
    ({}, {"schemes": ["vanila"]}, "did you mean 'vanilla'"),
    ({}, {"schemes": [["vanilla"]]}, "no scheme"),
    ({}, {"ways": ["vanilla"]}, "no setting 'ways'"),
    ({}, {"cache_mb": 0}, "cache_mb must be None or a number from 0.01"),
    ({}, {"cache_mb": 1.0}, r"leave out padded \(usual\), unpadded cache, unpadded inputs, or"),
    ({}, {"prefill_chunk": 2.5}, "prefill_chunk must be None or a whole number from 1"),
    ({"name": "mine.txt", "texts": None}, {}, "not part of this study"),
    ({"name": "mine.txt", "texts": ["a", 5]}, {}, "not part of this study"),
    ({"count": "all"}, {}, "number of prompts"),
])  # fmt: skip
def test_json_that_cannot_be_used_is_one_sentence(prompts, settings, says):
    prompts, settings = {"name": "stories", **prompts}, {"decoders": ["lookup"], **settings}
    with pytest.raises(InputError, match=says) as refusal:
        Batch.from_json({"prompts": prompts, "settings": settings})
    assert "\n" not in str(refusal.value)


LINK = (
    "kind=batch&count=2&sizes=1&schemes=unpadded&decoders=lookup"
    "&max_new_tokens=4&temperature=0&timings=1"
)


@pytest.fixture
def visitor(house) -> Visitor:
    return Visitor(house[1], LINK)


def measured(host: Host, visitor: Visitor):
    """The run made by a press of Measure."""
    before = {run.id for run in host.store.list()}
    visitor.press("batch-run")
    assert visitor.breakdowns == []
    assert "Done" in visitor.value("batch-progress")
    [new] = [run.id for run in host.store.list() if run.id not in before]
    return host.store.get(new)


def own(visitor: Visitor, tmp_path: Path, content: bytes) -> Path:
    """Choose a file with this content."""
    file = tmp_path / "mine.txt"
    file.write_bytes(content)
    visitor.put("batch-prompts", "own")
    visitor.give("batch-file", file)
    return file


def refused(visitor: Visitor) -> str:
    visitor.press("batch-run")
    assert visitor.breakdowns == []
    assert visitor.visible("batch-run")
    return visitor.message("batch-prompts")


def test_a_file_is_read_once_when_it_is_given(house, visitor, tmp_path):
    file = own(visitor, tmp_path, b"one\ntwo\nthree\n")
    assert "mine.txt: 3 prompts" in visitor.value("batch-file-note")
    file.unlink()
    assert measured(house[0], visitor).study["prompts"]["texts"] == ["one", "two"]


def test_a_file_that_cannot_be_read_is_said_at_once_and_at_measure(visitor, tmp_path):
    visitor.put("batch-prompts", "own")
    assert refused(visitor) == "No file is chosen; choose one, or take a built-in set."
    own(visitor, tmp_path, b"fine\n\xff")
    reason = "mine.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8."
    assert reason in visitor.value("batch-file-note")
    assert refused(visitor) == reason
    visitor.fire("batch-file", "clear")
    assert refused(visitor) == "No file is chosen; choose one, or take a built-in set."


def test_a_run_of_a_file_keeps_its_prompts_when_it_is_opened(house, visitor, tmp_path):
    """The emptied file box of an opened run took its prompts and the line with its outcome away."""
    own(visitor, tmp_path, b"one\ntwo\n")
    run = measured(house[0], visitor)
    again = Visitor(house[1], f"run={run.id}")
    assert "Done" in again.value("batch-progress")
    assert again.value("batch-prompts") == "own"
    assert "mine.txt: 2 prompts" in again.value("batch-file-note")
    assert measured(house[0], again).study == run.study


@pytest.mark.parametrize("sent", ["/etc/passwd", {"path": "/etc/passwd"}, None])
def test_a_path_in_the_form_is_never_read(house, visitor, sent):
    """A client sends the name of a set, never a path, and there are two names."""
    visitor.put("batch-prompts", sent)
    message = refused(visitor)
    assert "root:" not in message
    assert message.endswith(".")


def choices(visitor: Visitor) -> list[int]:
    return visitor.told("batch-sizes", "choices")


def test_sizes_that_have_no_box_get_one(house):
    """Measure asked to reload the page, and nobody could untick a size that had no box. Links may
    name any size, and so may runs of the terminal."""
    visitor = Visitor(house[1], LINK.replace("sizes=1", "sizes=3,1"))
    assert choices(visitor) == [1, 2, 3, 4, 8, 12, 16, 20, 24]
    run = measured(house[0], visitor)
    assert "sizes=3%2C1" in visitor.value("batch-settings-link")
    again = Visitor(house[1], f"run={run.id}")
    assert choices(again) == choices(visitor)
    assert again.value("batch-sizes") == [3, 1]
    assert measured(house[0], again).study == run.study
    again.put("batch-sizes", [1])  # the box can be unticked
    assert measured(house[0], again).study["settings"]["sizes"] == [1]


def test_what_is_missing_is_said_at_its_field(visitor):
    visitor.put("batch-sizes", [])
    visitor.put("batch-schemes", [])
    visitor.put("batch-count", None)
    visitor.tick("batch-decoders", [])
    visitor.press("batch-run")
    assert visitor.message("batch-count") == "The number of prompts is empty; give at least 1."
    chosen = {"sizes": "batch size", "schemes": "scheme", "decoders-baselines": "decoder"}
    for field, what in chosen.items():
        says = f"No {what} is chosen; choose at least one."
        assert visitor.message(f"batch-{field}") == says


def test_a_run_stopped_during_greedy_has_no_charts(house, visitor):
    """Six empty charts, 650 px high, stood above its table of one line."""
    run = measured(house[0], visitor)
    greedy = [r for r in run.results if r.decoder == "greedy"]
    house[0].store.save(stopped := replace(run, id=new_id(), results=greedy, cancelled=True))
    for shown, charts in ((run, True), (stopped, False)):
        again = Visitor(house[1], f"run={shown.id}")
        assert again.visible("batch-drawn") is charts
        assert "Greedy" in again.value("batch-figures")
    assert "Too little to compare." in again.value("batch-verdict")


def test_it_measures_prints_writes_and_keeps(call, store, tmp_path):
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text('{"prompt": "aa"}\n{"prompt": "[bold]b"}\n{"prompt": "c"}\n')
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "html")}
    status, out, _ = call(
        "batch", "--prompts", str(prompts), "--count", "2", "--decoders", "lookup", "--set",
        "lookup.copy=3", "--sizes", "1", "2", "--schemes", "vanilla", "unpadded",
        "--max-new-tokens", "4", "--end",
        *(x for kind, path in files.items() for x in (f"--{kind}", str(path))),
    )  # fmt: skip
    assert status == 0
    assert "Identical tokens in every scheme" in out
    run = Run.from_json(files["json"].read_bytes())
    assert [(r.decoder, r.batch_size, r.scheme) for r in run.results] == [
        ("greedy", 1, "unpadded"), ("lookup", 1, "unpadded"),
        ("greedy", 2, "unpadded"), ("lookup", 2, "vanilla"), ("lookup", 2, "unpadded"),
    ]  # fmt: skip
    assert (run.title, run.settings["lookup"]["copy"]) == ("2 mine.jsonl", 3)
    assert run.settings["ignore_eos"] is False
    assert run.study["prompts"] == {"name": "mine.jsonl", "count": 2, "texts": ["aa", "[bold]b"]}
    assert [s.prompt_length for s in run.results[0].samples] == [2, 7]
    assert len(list(csv.DictReader(files["csv"].open()))) == 5
    assert files["html"].read_text().startswith("<!doctype html>")
    assert store.get(run.id) == run
    assert out.endswith(f"\nkept as run {run.id}\n")
