"""The Batch tab without a browser: the sources of its prompts, and its answers."""

from dataclasses import replace

import pytest

from tests.workbench.page.visitor import Visitor
from workbench.page.host import Host
from workbench.runs.store import new_id

FEW = (
    "kind=batch&count=2&sizes=1&schemes=unpadded&decoders=lookup"
    "&max_new_tokens=4&temperature=0&timings=1"
)


@pytest.fixture
def visitor(house) -> Visitor:
    return Visitor(house[1], FEW)


def measured(host: Host, visitor: Visitor):
    """The run made by a press of Measure."""
    before = {run.id for run in host.store.list()}
    visitor.press("batch-run")
    assert visitor.breakdowns == []
    assert "Done" in visitor.value(visitor.find("batch-progress"))
    [new] = [run.id for run in host.store.list() if run.id not in before]
    return host.store.get(new)


def refused(visitor: Visitor) -> str:
    visitor.press("batch-run")
    assert visitor.breakdowns == []
    assert visitor.visible(visitor.find("batch-run"))
    return visitor.message("batch-prompts")


def test_batches_larger_than_the_set_say_that_prompts_come_again(visitor):
    """Sizes above the prompt count took prompts again without a word."""
    visitor.put("batch-sizes", [1, 8])
    visitor.put("batch-count", 3)
    assert "batches of 8 use some prompts twice: only 3 are chosen" in visitor.value(
        visitor.find("batch-asked")
    )


def test_a_file_is_read_once_when_it_is_given(house, visitor, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("one\ntwo\nthree\n")
    visitor.put("batch-prompts", "own")
    visitor.give("batch-file", file)
    assert "mine.txt: 3 prompts" in visitor.value(visitor.find("batch-file-note"))
    file.unlink()
    assert measured(house[0], visitor).study["prompts"]["texts"] == ["one", "two"]


def test_prompts_that_repeat_are_said(visitor, tmp_path):
    """A file with the same prompt on two lines was measured without a word."""
    file = tmp_path / "mine.txt"
    file.write_text("one\ntwo\n\none\n")
    visitor.put("batch-prompts", "own")
    visitor.give("batch-file", file)
    says = "mine.txt: 3 prompts; 1 of them repeats an earlier one (line 4)"
    assert says in visitor.value(visitor.find("batch-file-note"))


def test_a_file_that_cannot_be_read_is_said_at_once_and_at_measure(visitor, tmp_path):
    file = tmp_path / "bad.txt"
    file.write_bytes(b"fine\n\xff")
    visitor.put("batch-prompts", "own")
    assert refused(visitor) == "No file is chosen; choose one, or take a built-in set."
    visitor.give("batch-file", file)
    reason = "bad.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8."
    assert reason in visitor.value(visitor.find("batch-file-note"))
    assert refused(visitor) == reason
    visitor.fire(visitor.find("batch-file"), "clear")
    assert refused(visitor) == "No file is chosen; choose one, or take a built-in set."


def test_a_run_of_a_file_keeps_its_prompts_when_it_is_opened(house, visitor, tmp_path):
    """The emptied file box of an opened run took its prompts and the line with its outcome away."""
    file = tmp_path / "mine.txt"
    file.write_text("one\ntwo\n")
    visitor.put("batch-prompts", "own")
    visitor.give("batch-file", file)
    run = measured(house[0], visitor)
    again = Visitor(house[1], f"run={run.id}")
    assert "Done" in again.value(again.find("batch-progress"))
    assert again.value(again.find("batch-prompts")) == "own"
    assert "mine.txt: 2 prompts" in again.value(again.find("batch-file-note"))
    assert measured(house[0], again).study == run.study


@pytest.mark.parametrize(
    "sent", ["/etc/passwd", "../refrains", {"path": "/etc/passwd"}, ["own"], None, 7]
)
def test_a_path_in_the_form_is_never_read(house, visitor, sent):
    """A client sends the name of a set, never a path, and there are two names."""
    visitor.put("batch-prompts", sent)
    message = refused(visitor)
    assert "root:" not in message
    assert message.endswith(".")


def test_what_a_run_was_made_with_comes_back(house, visitor):
    visitor.put("batch-sizes", [1, 2])
    visitor.put("batch-eos", False)
    run = measured(house[0], visitor)
    again = Visitor(house[1], f"run={run.id}")
    assert again.value(again.find("batch-sizes")) == [1, 2]
    assert again.value(again.find("batch-eos")) is False
    assert again.value(again.find("batch-count")) == 2
    assert "every scheme" in again.value(again.find("batch-verdict"))
    link = (
        again.value(again.find("batch-settings-link"))
        .partition('href="?')[2]
        .partition('"')[0]
        .replace("&amp;", "&")
    )
    third = Visitor(house[1], link)
    assert measured(house[0], third).study == run.study


def choices(visitor: Visitor) -> list[int]:
    return visitor.told(visitor.find("batch-sizes"), "choices")


def test_sizes_that_have_no_box_get_one(house):
    """Measure asked to reload the page, and nobody could untick a size that had no box.

    Links may name any size, and so may runs of the terminal."""
    visitor = Visitor(house[1], FEW.replace("sizes=1", "sizes=3,1"))
    assert choices(visitor) == [1, 2, 3, 4, 8, 12, 16, 20, 24]
    run = measured(house[0], visitor)
    assert "sizes=3%2C1" in visitor.value(visitor.find("batch-settings-link"))
    again = Visitor(house[1], f"run={run.id}")
    assert choices(again) == choices(visitor)
    assert again.value(again.find("batch-sizes")) == [3, 1]
    assert measured(house[0], again).study == run.study
    again.put("batch-sizes", [1])  # the box can be unticked
    assert measured(house[0], again).study["settings"]["sizes"] == [1]


def test_what_is_missing_is_said_at_its_field(visitor):
    visitor.put("batch-sizes", [])
    visitor.put("batch-schemes", [])
    visitor.put("batch-count", None)
    visitor.tick("batch-decoders", [])
    visitor.press("batch-run")
    assert visitor.message("batch-sizes") == "No batch size is chosen; choose at least one."
    assert visitor.message("batch-schemes") == "No scheme is chosen; choose at least one."
    assert visitor.message("batch-count") == "The number of prompts is empty; give at least 1."
    assert (
        visitor.message("batch-decoders-baselines") == "No decoder is chosen; choose at least one."
    )


def test_a_run_stopped_during_greedy_has_no_charts(house, visitor):
    """Six empty charts, 650 px high, stood above its table of one line."""
    run = measured(house[0], visitor)
    greedy = [r for r in run.results if r.decoder == "greedy"]
    house[0].store.save(stopped := replace(run, id=new_id(), results=greedy, cancelled=True))
    for shown, charts in ((run, True), (stopped, False)):
        again = Visitor(house[1], f"run={shown.id}")
        assert again.visible(again.find("batch-drawn")) is charts
        assert "Greedy" in again.value(again.find("batch-figures"))
    assert "Too little to compare." in again.value(again.find("batch-verdict"))
