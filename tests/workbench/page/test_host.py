"""Shared by the page's handlers: checks without side effects, kept runs, and Stop."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from decoders import InputError, ModelPair
from tests.workbench.page.conftest import a_host
from workbench.kinds.comparison import Comparison
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.runs.events import Ended, Finished
from workbench.runs.store import RunStore
from workbench.studies.settings import Settings
from workbench.studies.study import Limits

OTHER = PairChoice("another/target")


def study(prompt: str = "Once", **settings) -> Comparison:
    asked = {"decoders": ["greedy"], "max_new_tokens": 4, **settings}
    return Comparison(prompt, Settings.from_json(asked))


def test_a_decoder_that_needs_a_head_is_refused_where_there_is_none(host):
    """With the box to untick, before a run."""
    list(host.run(study(), PairChoice()))  # the pair of these tests, now in memory, has no head
    asked = study(decoders=["greedy", "speculative"], speculative={"draft": "head"})
    with pytest.raises(InputError, match="has no head: choose another draft for Speculative, or"):
        host.check(asked, PairChoice())


def test_a_run_that_was_stopped_before_its_first_result_is_not_kept(host):
    stopped = threading.Event()
    stopped.set()
    *_, ended = host.run(study(), PairChoice(), stopped)
    assert ended.run.results == []
    assert host.store.list() == []


def test_what_is_finished_is_kept_while_the_study_runs(host):
    """A server that was killed in a run lost all of it, and the page said that it was kept."""
    events = host.run(study(decoders=["greedy", "speculative"]), PairChoice())
    finished = next(event for event in events if isinstance(event, Finished))
    assert RunStore(host.store.path).get(finished.run.id) == replace(finished.run, cancelled=True)
    *_, ended = events
    assert [kept.decoders for kept in host.store.list()] == [["greedy", "speculative"]]
    assert host.store.get(ended.run.id) == ended.run


def test_a_study_stopped_on_a_borrowed_gpu_ends_with_what_was_finished(host, monkeypatch):
    """Such a device stops without a last event. The page showed neither the finished results nor
    the place where they are kept."""
    events = list(host.device.run(study(decoders=["greedy", "speculative"]), PairChoice()))
    last = next(i for i, event in enumerate(events) if isinstance(event, Finished))

    def stops(*_):
        yield from events[: last + 1]

    monkeypatch.setattr(host.device, "run", stops)
    *_, ended = host.run(study(decoders=["greedy", "speculative"]), PairChoice())
    assert ended == Ended(replace(events[last].run, cancelled=True))
    assert [kept.id for kept in host.store.list()] == [ended.run.id]


def test_a_visitor_without_a_draft_is_told_where_to_choose_one(pair, tmp_path):
    """The page answered in the library's words: "load one with load_pair(target, draft)"."""
    host = a_host(ModelPair(pair.target, None, pair.tokenizer), tmp_path)
    says = "choose another pair under Models in the Compare tab, or untick Speculative, MTAD"
    with pytest.raises(InputError, match=says):
        host.check(study(decoders=["greedy", "speculative", "mtad"]), PairChoice())
    host.check(study(decoders=["greedy", "lookup"]), PairChoice())


def test_other_visitors_load_nothing_while_one_switches_pairs(pair, tmp_path):
    """A visitor who typed while another switched pairs once loaded a model in another thread."""
    loads: list[tuple[str, str]] = []
    loading, go_on = threading.Event(), threading.Event()

    def load(choice, custom_allowed, token):
        loads.append((choice.title, threading.current_thread().name))
        if choice == OTHER:
            loading.set()
            assert go_on.wait(30)
        return pair

    pairs = PairKeeper(loader=load)
    host = Host(limits=Limits(), store=RunStore(tmp_path / "runs.sqlite"), pairs=pairs)
    host.open()

    def type_and_press_run(i: int) -> tuple[int, int | None] | None:
        for choice in (PairChoice(), OTHER):
            host.chats(choice)
            host.check(study(f"visitor {i}"), choice)
        return host.tokens("Once", {}, PairChoice())

    with ThreadPoolExecutor(9) as interface:
        switch = interface.submit(host.device.pair, OTHER)
        assert loading.wait(30)
        told = list(interface.map(type_and_press_run, range(8)))
        assert told == [(4, pair.positions)] * 8  # nobody waits for the other's pair
        go_on.set()
        assert switch.result(30) is pair
        assert list(interface.map(type_and_press_run, range(8))) == [None] * 8
    assert [title for title, _ in loads] == [PairChoice().title, OTHER.title]
    assert all(re.fullmatch(r"device_\d+", thread) for _, thread in loads)
