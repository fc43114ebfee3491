"""Tabs that travel when they are opened: the page's configuration, and what a session keeps."""

from functools import partial
from typing import Any

import gradio as gr
import pytest
from anyio.from_thread import start_blocking_portal
from gradio.state_holder import SessionState

from workbench.page.widgets.later import LightBlocks, arrival


class Page:
    """A page with a tab that is sent later, which has another one inside, and one session."""

    def __init__(self) -> None:
        with LightBlocks() as self.blocks:
            with gr.Tabs():
                with gr.Tab("First"):
                    self.button = gr.Button("Fill")
                    self.ask = gr.Button("Ask")
                with gr.Tab("Second") as self.second:
                    self.field = gr.Textbox("usual")
                    self.box = gr.Column(visible=False)
                    with gr.Tabs(), gr.Tab("Third") as self.third:
                        self.slider = gr.Slider(0, 9, 3)
            self.answer = gr.Textbox()
            self.button.click(self.fill, None, [self.field, self.box, self.slider, self.answer])
            self.ask.click(lambda text, n: f"{text} {n}", [self.field, self.slider], self.answer)
            gr.on([self.field.change, arrival()], lambda x: x, self.field, self.answer)
            self.second.select(lambda: "seen", None, self.field).then(lambda: 1, None, self.slider)
            self.third.select(lambda: 2, None, self.slider)
            self.blocks.send_later([self.second, self.third])
        self.session = SessionState(self.blocks)

    def fill(self) -> dict[Any, Any]:
        return {self.field: "filled", self.box: gr.update(visible=True), self.answer: "done"}

    def fire(self, component: Any, event: str, *data: Any, session: Any = None) -> dict[str, Any]:
        """What the first handler of an event answers."""
        handlers = [f for f in self.blocks.fns.values() if (component._id, event) in f.targets]
        handler = next((f for f in handlers if f._id in self.blocks._senders), handlers[0])
        state = self.session if session is None else session
        # A thread of its own: a browser's test before this one leaves a loop in the main thread.
        with start_blocking_portal() as portal:
            return portal.call(partial(self.blocks.process_api, handler, list(data), state=state))

    def open(self, tab: Any, session: Any = None) -> dict[str, Any]:
        return self.fire(tab, "select", session=session)["render_config"]


@pytest.fixture
def page() -> Page:
    return Page()


def props(config: dict[str, Any], component: Any) -> dict[str, Any]:
    return next(each["props"] for each in config["components"] if each["id"] == component._id)


def laid_out(node: dict[str, Any]) -> set[int]:
    return {node["id"]}.union(*(laid_out(child) for child in node.get("children", ())))


def ids(config: dict[str, Any], kind: str) -> set[int]:
    return {each["id"] for each in config[kind]}


def test_the_page_comes_without_the_content_of_its_tabs(page):
    config = page.blocks.get_config_file()
    shown = laid_out(config["layout"])
    assert {page.second._id, page.answer._id} <= shown
    assert not {page.field._id, page.third._id, page.slider._id} & shown
    assert props(config, page.field) == {"visible": False}
    targets = [tuple(target) for each in config["dependencies"] for target in each["targets"]]
    assert (page.button._id, "click") in targets
    assert targets.count((page.second._id, "select")) == 1  # it asks for the tab
    assert (page.field._id, "change") not in targets


def test_a_client_finds_every_component_that_a_handler_names(house):
    """Gradio's client for Python broke: "coroutine raised StopIteration"."""
    config = house[1].get_config_file()
    named = {id for each in config["dependencies"] for id in each["inputs"] + each["outputs"]}
    assert named <= ids(config, "components")


def test_a_tab_comes_with_its_events_and_its_arrival_is_its_first_selection(page):
    part = page.open(page.second)
    assert ids(part, "components") >= {page.second._id, page.field._id, page.third._id}
    assert page.slider._id not in ids(part, "components")
    targets = [tuple(target) for each in part["dependencies"] for target in each["targets"]]
    assert (page.second._id, "load") in targets
    assert (page.field._id, "change") in targets
    assert (page.blocks._id, "load") in targets
    assert props(page.open(page.third), page.slider)["value"] == 3


def test_a_field_of_a_tab_can_be_typed_into_though_handlers_fill_it(page):
    """Gradio takes a component that handlers write and none reads for one that only shows."""
    part = page.open(page.second)
    assert props(part, page.field)["interactive"] is True
    assert "interactive" not in props(page.blocks.get_config_file(), page.answer)


def test_what_was_given_before_a_tab_is_opened_is_in_it_and_goes_through_afterwards(page):
    answer = page.fire(page.button, "click")["data"]
    assert answer == [{"__type__": "update"}] * 3 + ["done"]
    part = page.open(page.second)
    assert props(part, page.field)["value"] == "filled"
    assert props(part, page.box)["visible"] is True
    assert page.fire(page.button, "click")["data"][0] == "filled"


def test_sessions_are_kept_apart(page):
    page.fire(page.button, "click")
    other = page.open(page.second, SessionState(page.blocks))
    assert props(other, page.field)["value"] == "usual"
    assert props(other, page.box)["visible"] is False


def test_a_handler_gets_what_a_field_would_show_that_the_browser_lacks(page):
    assert page.fire(page.ask, "click", None, None)["data"] == ["usual 3"]
    page.fire(page.button, "click")
    assert page.fire(page.ask, "click", None, None)["data"] == ["filled 3"]
    page.open(page.second)
    assert page.fire(page.ask, "click", "typed", None)["data"] == ["typed 3"]


def test_events_in_two_tabs_are_refused():
    with LightBlocks() as blocks:
        button = gr.Button()
        with gr.Tabs(), gr.Tab("One") as tab:
            field = gr.Textbox()
        gr.on([button.click, field.change], lambda: None)
    with blocks, pytest.raises(ValueError, match="events in several tabs"):
        blocks.send_later([tab])


def test_every_component_and_handler_of_the_workbench_travels_once(house):
    blocks = house[1]
    whole: Any = gr.Blocks.get_config_file(blocks)
    session = SessionState(blocks)
    parts = [
        blocks.get_config_file(),
        *(blocks._part(t, blocks._kept(session)) for t in blocks._tabs),
    ]
    for kind in ("components", "dependencies"):
        sent = [each["id"] for part in parts for each in part[kind]]
        assert set(sent) == ids(whole, kind)
        if kind == "dependencies":
            assert len(sent) == len(set(sent))
