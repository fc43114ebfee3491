"""Shared by the tests of measuring: studies over the tiny pair, and decoders that break. And counts
of the rows that the engine gives out."""

from collections.abc import Callable, Iterable

import pytest
import torch

import decoders
from decoders.engine.passes import PackedPasses
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.measuring import job as job_module
from workbench.measuring.work import WARM_UP_TOKENS
from workbench.runs.events import Event
from workbench.runs.record import Result
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings
from workbench.studies.study import Study

TEXTS = ("abab", "hello hello hel", "one two one two one", "x", "ding dong ding")
FEW = PromptSet("few", tuple(Prompt(text, f"few, line {i}") for i, text in enumerate(TEXTS, 1)))


@pytest.fixture(scope="session")
def stories() -> decoders.ModelPair:
    """The embedded pair, which the recorded servers served."""
    return decoders.load_pair()


def comparison(*names: str, prompt="abc", **shared) -> Comparison:
    settings = {"decoders": list(names), "max_new_tokens": 16, "timings": 1, **shared}
    return Comparison(prompt, Settings.from_json(settings))


def batch(
    *names: str, prompts=FEW, sizes=(1, 3), temperature=0.0, tokens=10, own=None, **changes
) -> Batch:
    shared = {
        "decoders": list(names), "max_new_tokens": tokens, "temperature": temperature, "seed": 5,
        "timings": 1, **(own or {}),
    }  # fmt: skip
    return Batch(prompts, Settings.from_json(shared), sizes, **changes)


def results(events: Iterable[Event]) -> list[Result]:
    """The results of the run that the events end with."""
    *_, ended = events
    return ended.run.results


def make(kind: str, *names: str, **shared) -> Study:
    """A study of either kind that runs these decoders after greedy."""
    if kind == "comparison":
        return comparison("greedy", *names, max_new_tokens=12, **shared)
    return batch(*names, sizes=(2,), schemes=("unpadded",), tokens=12, prompts=FEW.first(3))


@pytest.fixture
def every_round(monkeypatch):
    """A job reports every round, as for a caller that draws at once."""
    monkeypatch.setattr(job_module, "UPDATE_SECONDS", 0.0)


@pytest.fixture
def rows_out(monkeypatch) -> Callable[[], int]:
    """The number of requests that hold cache rows of any engine at this moment."""
    held: list[tuple[int, int]] = []
    admit, release = PackedPasses.admit, PackedPasses.release

    def admitted(engine, tree, *rest):
        found = admit(engine, tree, *rest)
        if found:
            held.append((id(engine), id(tree)))
        return found

    def released(engine, tree):
        held.remove((id(engine), id(tree)))
        return release(engine, tree)

    monkeypatch.setattr(PackedPasses, "admit", admitted)
    monkeypatch.setattr(PackedPasses, "release", released)
    return lambda: len(held)


def out_of_memory() -> Exception:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")


def broken() -> Exception:
    return RuntimeError("device-side assert\ntrace of the driver")


FAILURES = {
    out_of_memory: "The device ran out of memory",
    broken: "RuntimeError: device-side assert",
}


def break_decoder(
    monkeypatch, name: str, failure: Callable[[], Exception], *, after: int, warm_up: bool
) -> None:
    """Let a decoder fail after this number of steps, in its warm-up or only after it."""
    usual = decoders.catalog[name].decode

    def decode(self, request):
        steps = usual(self, request)
        answer = None
        if (request.budget == WARM_UP_TOKENS) != warm_up:
            yield from steps
            return
        for _ in range(after):
            answer = yield steps.send(answer)
        raise failure()

    monkeypatch.setattr(decoders.catalog[name], "decode", decode)
