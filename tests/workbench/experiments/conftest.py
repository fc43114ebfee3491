"""What the tests of experiments share: the tiny pair on workers of this process, small plans, a journal in the test's folder."""

import pytest

from workbench.experiments import driver
from workbench.experiments.journal import Journal
from workbench.experiments.request import Request
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
from workbench.models import keeper
from workbench.models.keeper import PairKeeper

PLAN = """
title = "Small"
[[part]]
name = "timed"
limit = 3
max_new_tokens = 8
decoders = ["speculative", { name = "mtad", threshold = [0.1, 0.9] }]
[[part]]
name = "quality"
limit = 2
max_new_tokens = 6
timed = false
decoders = ["multinomial"]
"""


@pytest.fixture
def journal(tmp_path) -> Journal:
    return Journal(tmp_path / "experiments.sqlite")


@pytest.fixture
def device(pair, monkeypatch) -> Device:
    """A device with the tiny pair, whatever is asked for."""
    monkeypatch.setenv("WORKBENCH_THREADS", "1")
    monkeypatch.setattr(keeper, "load", lambda choice, custom_allowed: pair)
    monkeypatch.setattr("workbench.experiments.bench.IDLE_SECONDS", 0.01)
    return Device(PairKeeper())


@pytest.fixture
def crew(device):
    """The tiny pair in this process."""
    with Crew(InProcess(device)) as crew:
        yield crew


@pytest.fixture
def prepared(crew):
    """An experiment from a plan's text."""
    return lambda text=PLAN, **request: driver.prepare(Request(text, "small.toml", **request), crew)


def answers(journal: Journal, id: str) -> set:
    """What must not depend on interruptions or on who works: each row's cell, item, tokens and scores."""
    return {
        (kept.part, kept.cell, item, tuple((o.prompt, tuple(o.tokens), o.text, str(o.scores)) for o in row.outputs))
        for kept in journal.kept(id)
        for item, row in kept.rows.items()
    }
