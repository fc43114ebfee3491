"""What the replay's fold asks, and what any client may ask in its place."""

import gradio as gr
import pytest

from tests.workbench.page.visitor import Visitor
from workbench.page.widgets import Alternatives

ASKED = "prompt=ab<b>&decoders=speculative&max_new_tokens=8&temperature=0.7&timings=1"


@pytest.fixture(scope="module")
def visitor(house) -> Visitor:
    visitor = Visitor(house[1], ASKED)
    visitor.press("run")
    return visitor


def ask(visitor: Visitor, data):
    visitor.event = gr.EventData(None, data)
    visitor.fire(visitor.find("panels"), "expand")
    assert visitor.breakdowns == []
    return visitor.value(
        next(block for block in visitor.page.blocks.values() if isinstance(block, Alternatives))
    )


def test_a_round_of_a_run_is_judged(house, visitor):
    store = house[0].store
    run = store.get(store.list()[0].id)
    asked = {"ask": "q", "run": run.id, "decoder": "speculative", "round": 0}
    found = ask(visitor, asked)
    assert found["ask"] == "q"
    kept = sum(t.fate == "accepted" for t in run.results[0].alone.rounds[0].trials)
    assert found["rows"][0]["own"]
    assert found["rows"][0]["kept"] == kept
    assert len(found["tokens"]) == len(found["rows"][0]["chances"])


@pytest.mark.parametrize(
    "data",
    [None, {}, {"run": 5, "decoder": "x"}, {"run": "no", "decoder": "speculative", "round": 0}],
)
def test_anything_else_gets_one_sentence(visitor, data):
    assert ask(visitor, data)["error"].endswith(".")
