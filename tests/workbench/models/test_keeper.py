"""One pair in memory; asking for it neither loads nor waits."""

import gc
import threading
import weakref

import pytest
import torch

from decoders import InputError
from workbench.models import presets
from workbench.models.keeper import PairKeeper, offered
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice

A, B = PairChoice("a"), PairChoice("b")


class Loads(list):
    """The pairs loaded, in order; a pair is its choice in capitals."""

    def __call__(self, choice, custom_allowed, public):
        self.append((choice, custom_allowed))
        if choice.target == "broken":
            raise InputError("broken could not be loaded")
        return choice.target.upper()


@pytest.fixture
def loads():
    return Loads()


def test_a_pair_is_loaded_once_and_another_takes_its_place(loads):
    pairs = PairKeeper(loader=loads)
    assert [pairs.get(c) for c in (A, A, B, B, A)] == ["A", "A", "B", "B", "A"]
    assert [choice for choice, _ in loads] == [A, B, A]


def test_what_another_pair_held_is_let_go_at_once(monkeypatch):
    """Rings of references keep a pair until Python looks for them, which may be long after.

    Before the first pair there is nothing to look for, and looking took a third of a second of the
    start."""

    class Ring:
        def __init__(self):
            self.own = self

    collect, looked = gc.collect, []
    monkeypatch.setattr(gc, "collect", lambda: looked.append(collect()))
    pairs = PairKeeper(loader=lambda *_: Ring())
    gone = weakref.ref(pairs.get(A))
    assert not looked
    pairs.get(B)
    assert gone() is None


def test_the_rule_of_the_place_goes_to_the_loader(loads):
    PairKeeper(custom_allowed=False, loader=loads).get(A)
    assert loads == [(A, False)]


def test_a_pair_that_cannot_be_loaded_leaves_the_one_in_memory(loads):
    pairs = PairKeeper(loader=loads)
    pairs.get(A)
    with pytest.raises(InputError, match="broken"):
        pairs.get(PairChoice("broken"))
    assert pairs.peek(A) == "A"
    pairs.get(A)
    assert len(loads) == 2


def test_a_peek_loads_nothing(loads):
    """While another visitor had switched pairs, typing loaded a model in an interface thread."""
    pairs = PairKeeper(loader=loads)
    assert pairs.peek(A) is None
    pairs.get(A)
    assert (pairs.peek(A), pairs.peek(B)) == ("A", None)
    assert [choice for choice, _ in loads] == [A]


def test_a_peek_does_not_wait_for_a_pair_that_is_being_loaded():
    loading, go_on = threading.Event(), threading.Event()

    def slow(*_):
        loading.set()
        assert go_on.wait(30)
        return "loaded"

    pairs = PairKeeper(loader=slow)
    worker = threading.Thread(target=pairs.get, args=(A,))
    worker.start()
    try:
        assert loading.wait(30)
        assert pairs.peek(A) is None  # would wait for ever if it asked for the lock
    finally:
        go_on.set()
        worker.join()
    assert pairs.peek(A) == "loaded"


def test_two_that_ask_at_once_load_once(loads):
    pairs, barrier = PairKeeper(loader=loads), threading.Barrier(4)

    def ask():
        barrier.wait()
        pairs.get(A)

    workers = [threading.Thread(target=ask) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(loads) == 1


def test_presets_say_what_memory_they_need_and_which_do_not_fit(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)

    def labels(free):
        monkeypatch.setattr(presets, "available_bytes", lambda device: free)
        return {name: label for label, name in offered()}

    qwen = "Qwen3-8B + Qwen3-0.6B"
    assert labels(None)[qwen] == f"{qwen}: 35.1 GB in float32"
    assert labels(30 * 10**9)[qwen] == f"{qwen}: 17.6 GB in bfloat16, choose dtype bfloat16"
    assert labels(1000)[qwen] == f"{qwen}: does not fit, 17.6 GB in bfloat16 and 0.0 MB free"
    assert labels(1000)[EMBEDDED.name] == EMBEDDED.name
    assert list(labels(None)) == list(PAIRS)
