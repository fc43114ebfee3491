"""Shared by the tests of experiments: the tiny pair on local workers, small plans, a journal."""

import pytest

from workbench.experiments import driver
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device
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


@pytest.fixture(scope="session")
def device(pair) -> Device:
    """A device with the tiny pair, whatever is asked for."""
    return Device(PairKeeper(loader=lambda *_: pair))


@pytest.fixture
def crew(device):
    """The tiny pair in this process."""
    with Crew(InProcess(device)) as crew:
        yield crew


@pytest.fixture
def prepared(crew):
    """An experiment from a plan's text."""
    return lambda text=PLAN, **request: driver.prepare(
        ExperimentRequest(text, "small.toml", **request), crew
    )


def answers(journal: Journal, id: str) -> set:
    """Each row's cell, item, tokens and scores. They must not depend on interruptions or on the
    worker."""
    found = set()
    for kept in journal.cells(id):
        for item, row in kept.rows.items():
            outputs = [(o.prompt, tuple(o.ids), o.text, str(o.scores)) for o in row.samples]
            found.add((kept.part, kept.cell, item, *outputs))
    return found
