"""Branching on the page and as endpoints, without a browser.

Whatever a client sends, the strip gets an answer."""

import gradio as gr
import pytest

from tests.workbench.page.visitor import Visitor
from workbench.page.host import Host
from workbench.page.widgets import Alternatives
from workbench.runs.record import Run

ASKED = "prompt=ab<b>&decoders=greedy,mtad&max_new_tokens=6&temperature=0.7&top_k=5&timings=1"


@pytest.fixture(scope="module")
def visitor(house) -> Visitor:
    visitor = Visitor(house[1], ASKED)
    visitor.press("run")
    return visitor


@pytest.fixture(scope="module")
def parent(house, visitor) -> Run:
    """The run of the visitor."""
    return newest(house[0])


def ask(visitor: Visitor, event: str, data) -> None:
    """Fire the strip's `event` at the panels."""
    visitor.event = gr.EventData(None, data)
    visitor.fire(visitor.find("panels"), event)
    assert visitor.breakdowns == []


def answer(visitor: Visitor):
    return visitor.value(
        next(block for block in visitor.page.blocks.values() if isinstance(block, Alternatives))
    )


def newest(host: Host) -> Run:
    return host.store.get(host.store.list()[0].id)


def test_alternatives_and_a_branch_of_all_decoders_with_its_trail(house, visitor, parent):
    where = {"run": parent.id, "decoder": "mtad", "at": 2, "ask": "the first"}
    ask(visitor, "select", where)
    found = answer(visitor)
    assert found["ask"] == "the first"
    assert len(found["choices"]) == 20
    assert {each["warped"] for each in found["choices"]} == {None}
    token = found["choices"][1]["id"]
    ask(visitor, "submit", {**where, "token": token, "decoders": ["greedy", "mtad"]})
    child = newest(house[0])
    assert child.study["start"]["trail"][0]["run"] == parent.id
    assert child.study["start"]["ids"][-1] == token
    assert f'href="?run={parent.id}"' in visitor.value(visitor.find("headline"))
    assert "Done" in visitor.value(visitor.find("progress"))
    again = Visitor(house[1], f"run={child.id}")
    assert f'href="?run={parent.id}"' in again.value(again.find("headline"))


def test_a_typed_token_is_looked_up(visitor, parent):
    where = {"run": parent.id, "decoder": "greedy", "at": 0}
    ask(visitor, "select", {**where, "token": "#3"})
    assert answer(visitor)["wanted"] == 3
    ask(visitor, "select", {**where, "token": "<b>two"})
    assert "tokens here" in answer(visitor)["error"]


@pytest.mark.parametrize("event", ["select", "submit"])
@pytest.mark.parametrize(
    "data",
    [
        None, 7, "x", [], {}, {"run": 1},
        {"run": "nowhere", "decoder": "greedy", "at": 1, "token": 1, "decoders": ["greedy"]},
        {"run": "a" * 9, "decoder": ["greedy"], "at": 1},
        {"run": "OWN", "decoder": "greedy", "at": "1", "token": 1, "decoders": ["greedy"]},
        {"run": "OWN", "decoder": "greedy", "at": 1, "token": {"a": 1}, "decoders": ["greedy"]},
        {"run": "OWN", "decoder": "greedy", "at": 10**30, "token": 1, "decoders": ["greedy"]},
    ],
)  # fmt: skip
def test_whatever_a_client_sends_is_answered_in_a_sentence(house, visitor, parent, event, data):
    if isinstance(data, dict) and data.get("run") == "OWN":
        data = {**data, "run": parent.id}
    before = len(house[0].store.list())
    ask(visitor, event, data)
    assert answer(visitor)["error"].endswith(".")
    assert len(house[0].store.list()) == before


@pytest.mark.parametrize("decoders", [None, [], "greedy", ["no such"], [1]])
def test_decoders_that_cannot_continue_are_refused(visitor, parent, decoders):
    ask(
        visitor,
        "submit",
        {"run": parent.id, "decoder": "greedy", "at": 1, "token": 1, "decoders": decoders},
    )
    assert answer(visitor)["error"]


def endpoint(house, name: str):
    return next(function.fn for function in house[1].fns.values() if function.api_name == name)


def test_the_endpoints(house, parent):
    found = endpoint(house, "alternatives")(parent.id, "mtad", 1)["alternatives"]
    assert set(found[0]) == {"id", "text", "raw", "warped"}
    *_, child = endpoint(house, "branch")(parent.id, "mtad", 1, found[2]["id"])
    assert child["start"]["trail"][0]["run"] == parent.id
    assert [r["decoder"] for r in child["results"]] == ["mtad"]
    for arguments in (
        (parent.id, "mtad", 99, 1),
        ("nowhere", "mtad", 1, 1),
        (parent.id, 7, 1, 1),
        (parent.id, "mtad", 1, 10**9),
    ):
        with pytest.raises(gr.Error):
            list(endpoint(house, "branch")(*arguments))
    with pytest.raises(gr.Error):
        endpoint(house, "alternatives")(parent.id, "mtad", -5)
