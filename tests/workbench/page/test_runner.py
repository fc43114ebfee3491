"""Run, Stop and Leave: whatever goes wrong is one sentence, Run is back, and the next run works."""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import pytest
import torch

from decoders import InputError
from tests.pairwise import pairwise, part
from tests.workbench.page.visitor import Visitor
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.measuring import session
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.events import Ended, Event, Finished, Started
from workbench.runs.store import RunStore, new_id, recordings
from workbench.studies.settings import Settings

COMPARE = "prompt=Once&decoders=greedy,speculative&max_new_tokens=6"
BATCH = (
    "kind=batch&count=2&sizes=1,2&schemes=unpadded&decoders=lookup&max_new_tokens=4&temperature=0"
)
# what each tab's `elem_id`s begin with, and a link that fills it
TABS = {"": COMPARE, "batch-": BATCH}
ERRORS = {
    "refused": (lambda: InputError("The pair cannot be had; take another."),
        "The pair cannot be had; take another."),
    "quota": (lambda: gr.Error("You have exceeded your GPU quota."),
        "You have exceeded your GPU quota."),
    "runtime": (lambda: RuntimeError("CUDA error: <b>device-side</b> assert"),
        "Something went wrong (RuntimeError)"),
    "memory": (lambda: MemoryError(), "The device ran out of memory"),
    "device memory": (lambda: torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB"),
        "The device ran out of memory"),
    "key": (lambda: KeyError("layers.3"), "Something went wrong (KeyError)"),
}  # fmt: skip
STEPS: dict[str, Callable[[Event], bool] | None] = {
    "at the call": None,
    "after Started": lambda event: isinstance(event, Started),
    "in the middle": lambda event: isinstance(event, Finished),
    "at the end": lambda event: isinstance(event, Finished) and event.at.job == event.at.jobs - 1,
}


class Replayed:
    """A device that replays a recorded run, with a new id each time. The first time it may break
    down at a step."""

    def __init__(self, events: list[Event], step: str = "", error: Exception | None = None):
        self.events, self.step, self.error = events, step, error
        self.keeper = PairKeeper()

    def run(self, study, choice, stopped=None) -> Iterator[Event]:
        error, self.error = self.error, None
        self.stopped = stopped
        if error is not None and STEPS[self.step] is None:
            raise error
        for event in self.events:
            yield (
                replace(event, run=replace(event.run, id=new_id()))
                if isinstance(event, Ended)
                else event
            )
            if error is not None and STEPS[self.step](event):
                raise error


class Full(RunStore):
    """A store on a disk that is full until `error` is taken away."""

    def __init__(self, path, error: Exception):
        super().__init__(path)
        self.error: Exception | None = error

    def save(self, run) -> None:
        if self.error is not None:
            raise self.error
        super().save(run)


@pytest.fixture(scope="module")
def recorded(pair, unmetered) -> dict[str, list[Event]]:
    """For each tab the events of its study."""
    settings = Settings.from_json({"decoders": ["greedy", "speculative"], "max_new_tokens": 6})
    chosen = {
        "decoders": ["lookup"],
        "max_new_tokens": 4,
        "temperature": 0.0,
        "sizes": [1, 2],
        "schemes": ["unpadded"],
    }
    batch = Batch.from_json({"prompts": {"name": "refrains", "count": 2}, "settings": chosen})
    studies = {"": Comparison("Once", settings), "batch-": batch}
    return {tab: list(session.run(pair, study, meter=unmetered)) for tab, study in studies.items()}


@pytest.fixture
def replays(house, recorded, monkeypatch) -> Callable[..., Replayed]:
    """Lets the page's device replay a tab's study, and perhaps break down at a step of it."""

    def let(tab: str, *breaks: Any) -> Replayed:
        monkeypatch.setattr(house[0], "device", device := Replayed(recorded[tab], *breaks))
        return device

    return let


def idle(visitor: Visitor, tab: str) -> bool:
    """Whether Run is there, and neither Stop nor the way out of the queue."""
    shown = [bool(visitor.visible(tab + name)) for name in ("run", "stop", "leave")]
    return shown == [True, False, False]


def said(visitor: Visitor, tab: str) -> str:
    return visitor.value(tab + "progress") or ""


def works(visitor: Visitor, tab: str) -> None:
    """Run once more, to its end."""
    visitor.press(tab + "run")
    assert "Done" in said(visitor, tab)
    assert idle(visitor, tab)
    assert visitor.breakdowns == []


@pytest.mark.parametrize(
    ("tab", "step", "kind"),
    part(pairwise(list(TABS), list(STEPS), list(ERRORS)), 3),
    ids=str,
)
def test_every_error_at_every_step_is_one_sentence_and_run_is_back(
    house, replays, caplog, tab, step, kind
):
    """An unforeseen exception once left Stop on the page, Run hidden, and no reason."""
    _, page = house
    make, sentence = ERRORS[kind]
    replays(tab, step, make())
    visitor = Visitor(page, TABS[tab])
    visitor.press(tab + "run")
    told = re.fullmatch(r'<div role="alert">([^<>]+)</div>', said(visitor, tab))
    assert told, said(visitor, tab)
    assert told[1].startswith(sentence)
    assert told[1].endswith(".")
    assert idle(visitor, tab)
    assert visitor.breakdowns == []
    foreseen = kind in ("refused", "quota")
    assert bool(caplog.records) != foreseen, "the log has the unforeseen, and only that"
    works(visitor, tab)


@pytest.mark.parametrize(("tab", "kind"), [*zip(itertools.cycle(TABS), ERRORS)], ids=str)
def test_a_run_that_cannot_be_kept_is_shown_with_its_files(house, replays, monkeypatch, tab, kind):
    """A full disk once lost the result, and the page with it."""
    host, page = house
    replays(tab)
    make, _ = ERRORS[kind]
    monkeypatch.setattr(host, "store", Full(host.store.path, make()))
    before = len(host.store.list())
    visitor = Visitor(page, TABS[tab])
    visitor.press(tab + "run")
    assert "Done" in said(visitor, tab)
    assert re.search(
        r'<div role="alert">[^<>]+\. Download this run, or it is lost\.</div>',
        said(visitor, tab),
    )
    kept = visitor.value(tab + "run-link")
    assert "Not kept" in kept
    assert kept.count('href="data:') == 2
    assert "?run=" not in kept
    assert len(host.store.list()) == before
    assert idle(visitor, tab)
    host.store.error = None
    works(visitor, tab)
    assert len(host.store.list()) == before + 1


@pytest.mark.parametrize(("tab", "field"), [("", "prompt"), ("batch-", "batch-prompts")])
def test_what_breaks_before_the_queue_is_one_sentence_too(house, replays, monkeypatch, tab, field):
    """A tokenizer's exception at a prompt appeared in a corner of the page, in its own words."""
    host, page = house
    replays(tab)

    def broken(study, choice):
        raise TypeError("TextEncodeInput must be Union[TextInputSequence, ...]")

    visitor = Visitor(page, TABS[tab])
    with monkeypatch.context() as patch:
        patch.setattr(host, "check", broken)
        visitor.press(tab + "run")
    assert visitor.message(field).startswith("Something went wrong (TypeError)")
    assert visitor.breakdowns == []
    assert idle(visitor, tab)
    works(visitor, tab)


def test_leaving_the_tab_ends_the_job(house):
    """Gradio closes the generator of a tab that is closed: the decoder must end then, and the next
    visitor find the device free."""
    _, page = house
    visitor = Visitor(page, COMPARE.replace("max_new_tokens=6", "max_new_tokens=400"))
    for answer in (running := visitor.firing("run", "click")):
        if any("Preparing" in str(value) for value in answer.values()):
            break
    next(running)
    running.close()
    works(Visitor(page, COMPARE, "the next one"), "")


@pytest.mark.parametrize("way", part(["address", "list"]))
def test_who_opens_another_run_while_their_own_ends_sees_nothing_more_of_it(house, replays, way):
    """Whoever went back in the moment when a run ended saw that run's "Speeds are rough" over the
    example, and its texts and charts over it if they went earlier."""
    host, page = house
    replays("")
    works(Visitor(page, COMPARE), "")
    earlier = host.store.list()[0].id
    parts = ("headline", "band-picture", "panels", "run-link", "progress")
    pauses = sum(1 for _ in Visitor(page, COMPARE).firing("run", "click"))
    assert pauses > 4
    for gone in range(2, pauses):
        visitor = Visitor(page, COMPARE)
        for i, _ in enumerate(visitor.firing("run", "click")):
            if i == gone and way == "address":
                visitor.put("address", {"query": f"run={recordings()[1].run.id}"})
                visitor.fire("address", "submit")
            elif i == gone:
                visitor.put("past-runs", {"chosen": [earlier]})
                visitor.press("open-run")
            if i == gone:
                shown = [visitor.value(part) for part in parts]
        assert [visitor.value(part) for part in parts] == shown
        assert idle(visitor, "")
        assert visitor.breakdowns == []


def test_a_run_opened_in_another_tab_leaves_the_one_that_goes_on_in_view(house, replays):
    host, page = house
    replays("batch-")
    works(Visitor(page, BATCH), "batch-")
    replays("")
    visitor = Visitor(page, COMPARE)
    for i, _ in enumerate(visitor.firing("run", "click")):
        if i == 2:
            visitor.put("past-runs", {"chosen": [host.store.list(kind="batch")[0].id]})
            visitor.press("open-run")
    assert "Done" in said(visitor, "")


def test_measuring_again_runs_the_same_study_and_can_leave_the_queue(house, replays):
    """Measure again once went into the queue without a word, and without the way out of it."""
    _, page = house
    replays("")
    visitor = Visitor(page, COMPARE)
    visitor.press("run")
    running = visitor.firing("again", "click")
    next(running)
    assert "Waiting for the device." in said(visitor, "")
    assert visitor.visible("leave")
    assert not visitor.visible("again")
    for _ in running:
        pass
    assert "Done" in said(visitor, "")
    assert idle(visitor, "")
    assert visitor.breakdowns == []


def test_a_run_that_nobody_asked_for_is_none(house):
    """A client can fire the hidden Measure again before there is any ticket. That once ended in a
    traceback."""
    host, page = house
    visitor, before = Visitor(page, COMPARE), host.store.list()
    visitor.press("again")
    assert visitor.breakdowns == []
    assert visitor.visible("run")
    assert host.store.list() == before


@pytest.mark.parametrize("prefix", ["", "batch-", "draw-"])
def test_a_pair_that_cannot_be_loaded_is_told_in_the_tab_that_asked_saying_where_to_choose_another(
    house, monkeypatch, prefix
):
    """Draws and Batch asked to "name one that holds a model", but have no field to name it in:
    pairs are chosen in Compare."""
    host, page = house
    visitor = Visitor(page, {**TABS, "draw-": "kind=draw&prompt=Once&draws=10"}[prefix])
    missing = PairChoice("/no/such/folder")
    monkeypatch.setattr(host.pairs, "get", lambda choice: PairKeeper.get(host.pairs, missing))
    visitor.press(f"{prefix}run")
    assert visitor.breakdowns == []
    said = {each: visitor.value(f"{each}progress") or "" for each in ("", "batch-", "draw-")}
    assert "There is no folder /no/such/folder" in said[prefix]
    assert said[prefix].endswith("Load another pair under Models in the Compare tab.</div>")
    assert [each for each, text in said.items() if "no folder" in text] == [prefix]


def test_stop_ends_the_job_of_its_own_tab(house):
    """Both tabs of a visitor once had one key: Stop under Batch ended the comparison."""
    host, page = house
    visitor = Visitor(page, COMPARE)
    names = ("stop", "batch-stop")
    with (
        host.stoppable(("a visitor", "comparison")) as compare,
        host.stoppable(("a visitor", "batch")) as batch,
        host.stoppable(("another", "comparison")) as other,
    ):
        visitor.press(names[1])
        assert (compare.is_set(), batch.is_set(), other.is_set()) == (False, True, False)
        visitor.press(names[0])
        assert (compare.is_set(), other.is_set()) == (True, False)
    visitor.press(names[0])  # nothing runs any more


@pytest.mark.parametrize("waits", [False, True])
def test_who_presses_run_before_the_texts_are_there_waits_for_them_alone(house, replays, waits):
    """Only a run whose texts were there already made way: others were timed to the end."""
    page, device = house[1], replays("")
    first, second = Visitor(page, COMPARE), Visitor(page, COMPARE)
    waiting = second.firing("run", "click")
    for i, _ in enumerate(first.firing("run", "click")):
        if waits and i == 2:
            next(waiting)
    waiting.close()  # else it may end, and be kept, in the middle of a later test
    assert device.stopped.is_set() == waits
    assert "Done" in said(first, "")


def test_who_leaves_a_run_ends_it(house):
    """It went on unseen, and the next visitor waited for it."""
    host, _ = house
    with host.stoppable(("a visitor", "comparison")) as stopped:
        assert host.in_view(stopped)
        host.leave(("a visitor", "comparison"))
        assert stopped.is_set()
        assert not host.in_view(stopped)
