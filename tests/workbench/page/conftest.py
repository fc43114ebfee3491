"""A page over the tests' pair, without a browser."""

from pathlib import Path

import gradio as gr
import pytest

from decoders import ModelPair
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.layout import build
from workbench.runs.store import RunStore
from workbench.studies.study import Limits


class OnePair(PairKeeper):
    """A keeper whose embedded pair is the tests', always in memory."""

    def __init__(self, pair: ModelPair):
        super().__init__()
        self.pair = pair

    def get(self, choice: PairChoice) -> ModelPair:
        return self.pair if choice == PairChoice() else super().get(choice)

    def peek(self, choice: PairChoice) -> ModelPair | None:
        return self.pair if choice == PairChoice() else super().peek(choice)


def a_host(pair: ModelPair, folder: Path, **limits) -> Host:
    """A host with the tests' pair and its runs in `folder`."""
    return Host(
        limits=Limits(**limits), store=RunStore(folder / "runs.sqlite"), pairs=OnePair(pair)
    )


@pytest.fixture
def host(pair, tmp_path) -> Host:
    return a_host(pair, tmp_path)


@pytest.fixture(scope="module")
def house(pair, tmp_path_factory) -> tuple[Host, gr.Blocks]:
    """A host and its page, one for all tests of a file."""
    host = a_host(pair, tmp_path_factory.mktemp("runs"))
    return host, build(host)
