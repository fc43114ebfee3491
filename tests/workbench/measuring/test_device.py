"""Studies run in the one thread that decodes, or as plain data on a borrowed GPU."""

import threading

import pytest
import torch

from decoders import InputError, ModelPair
from tests.workbench.measuring.conftest import batch, comparison, results
from workbench.measuring import device as device_module
from workbench.measuring.device import MOST_SECONDS, Device, chosen, quickest
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.events import Progress, Started

CHOICE = PairChoice()


@pytest.fixture
def keeper(pair) -> PairKeeper:
    """Keeps the tiny pair in place of any other, and notes the threads that loaded it."""

    def load(choice, *_):
        found.threads.append(threading.get_ident())
        if choice.target == "broken":
            raise InputError("broken could not be loaded")
        return pair

    found = PairKeeper(loader=load)
    found.threads = []
    return found


@pytest.fixture
def device(keeper) -> Device:
    return Device(keeper)


def test_a_call_runs_in_the_one_thread_and_hands_back_what_it_gives_or_raises(device):
    threads = {device.call(threading.get_ident) for _ in range(5)}
    assert len(threads) == 1
    assert threads != {threading.get_ident()}
    with pytest.raises(ZeroDivisionError):
        device.call(lambda: 1 // 0)
    assert device.call(int, "7") == 7


@pytest.mark.parametrize("choice", [PairChoice("broken"), CHOICE])
def test_what_cannot_run_is_refused_before_any_event_and_the_device_stays_usable(device, choice):
    long = comparison("greedy", prompt="abc" * 200) if choice == CHOICE else comparison("greedy")
    with pytest.raises(InputError, match=r"broken could not be loaded|exceed the 512 positions"):
        next(device.run(long, choice))
    assert len(results(device.run(comparison("greedy"), CHOICE))) == 1


@pytest.mark.parametrize(
    "study", [comparison("greedy", "mtad"), batch("lookup", sizes=(2,))], ids=lambda each: each.kind
)
def test_on_zero_gpu_plain_data_goes_there_and_comes_back(keeper, spaces, study):
    """A `threading.Event` cannot be pickled: the stop stays here."""
    *_, ended = Device(keeper).run(study, CHOICE, threading.Event())
    assert [r.decoder for r in ended.run.results] == [j.method.name for j in study.jobs()]
    assert spaces.crossed == [(study, CHOICE, None)]
    assert spaces.closed == 1


def test_on_zero_gpu_a_stop_closes_the_job_there(keeper, spaces, every_round, rows_out):
    stopped, seen = threading.Event(), []
    study = comparison("greedy", "mtad", max_new_tokens=200)
    for event in Device(keeper).run(study, CHOICE, stopped):
        seen.append(event)
        if isinstance(event, Progress):
            stopped.set()
    assert isinstance(seen[0], Started)
    assert isinstance(seen[-1], Progress)
    assert (spaces.closed, rows_out()) == (1, 0)


def test_on_zero_gpu_the_time_asked_for_is_estimated_from_the_study(keeper, spaces):
    """A fixed duration of 120 s was refused to visitors with less quota left."""
    device = Device(keeper)
    for tokens in (4, 32):
        list(device.run(comparison("greedy", max_new_tokens=tokens), CHOICE))
    list(device.run(comparison("greedy", "mtad", max_new_tokens=32), CHOICE))
    small, larger, two = spaces.durations
    assert small < larger < two <= MOST_SECONDS
    assert all(isinstance(seconds, int) for seconds in spaces.durations)


def test_on_zero_gpu_what_is_refused_there_is_raised_here(keeper, spaces):
    with pytest.raises(InputError, match="exceed the 512 positions"):
        next(Device(keeper).run(comparison("greedy", prompt="abc" * 200), CHOICE))


def test_more_threads_must_be_clearly_quicker():
    assert quickest([1, 2], lambda count, _: {1: 1.0, 2: 0.6}[count]).count == 2
    assert quickest([1, 2], lambda count, _: {1: 1.0, 2: 0.98}[count]).count == 1
    odd = {1: iter([1.0] * 5), 2: iter([1.9, 0.5, 0.5, 0.5, 0.5])}
    assert quickest([1, 2], lambda count, _: next(odd[count])).count == 2


def test_a_hopeless_number_is_tried_once():
    """Beside another program, two OpenMP threads on two cores took 160 ms for 4 ms of work."""
    tried = []

    def seconds(count: int, limit: float) -> float:
        tried.append((count, limit))
        return {1: 1.0, 2: 40.0}[count]

    found = quickest([1, 2], seconds)
    assert found.count == 1
    assert [count for count, _ in tried].count(2) == 1
    assert tried[1] == (2, 2.0)  # it may give up after twice the best
    assert "40000.0 ms with 2" in found.reason


def test_trials_that_take_long_are_few():
    """Those of SmolLM2 kept a visitor waiting for seven seconds."""
    tried = []
    quickest([1, 2], lambda count, _: tried.append(count) or 1.0, patience=-1)
    assert tried == [1, 2]


def test_threads_are_not_chosen_anew_after_each_of_many_unsteady_runs(keeper, monkeypatch):
    """On a machine where no run is steady, each began with trials of several seconds."""
    monkeypatch.setattr(device_module, "unsteady", lambda *_: ["it varies"])
    device = Device(keeper)
    _, first = device.call(device.ready, CHOICE)
    for _ in range(2):
        list(device.run(comparison("greedy", max_new_tokens=4), CHOICE))
    assert device.call(device.ready, CHOICE)[1] is first


def test_the_variable_overrides(pair):
    found = chosen(pair, {"WORKBENCH_THREADS": " 2 "})
    assert (found.count, "WORKBENCH_THREADS" in found.reason) == (2, True)
    for text in ("many", "0", "-1"):
        with pytest.raises(InputError, match="WORKBENCH_THREADS"):
            chosen(pair, {"WORKBENCH_THREADS": text})


def test_measuring_leaves_the_number_as_it_was(pair):
    before = torch.get_num_threads()
    found = chosen(pair, {})
    assert found.count >= 1
    assert torch.get_num_threads() == before


def test_measuring_warns_of_no_prompt(pair, monkeypatch, caplog):
    """Where the start token is 0, as the embedded pair's, each trial put a warning about its own
    prompt, that token again and again, into the log of a page that opened."""
    monkeypatch.setattr(ModelPair, "bos", 0)
    chosen(pair, {})
    assert not caplog.records
