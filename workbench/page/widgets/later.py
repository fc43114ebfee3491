"""Tabs whose content the browser gets when they are opened.

Before a browser shows a page, Gradio's scripts go through every event for every component, twice.
So the page is whole on the server alone. A tab travels as what `gr.render` sends: components,
layout and events. They have the values that handlers gave them in the visitor's session meanwhile.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr
from gradio.blocks import Block
from gradio.context import Context
from gradio.state_holder import SessionState
from gradio.utils import is_prop_update

# What only Gradio's documentation of an endpoint reads of a component.
DOCUMENTATION = ("api_info", "api_info_as_input", "api_info_as_output", "example_inputs")
SKIP = {"__type__": "update"}
Config = dict[str, Any]


def arrival() -> Any:
    """The event of the page's load, and of the arrival of the tab that is being laid out."""
    page = Context.root_block
    assert page is not None  # there is one while it is laid out
    return page.load


class LightBlocks(gr.Blocks):
    """A page that sends a tab once that is opened."""

    def __init__(self, **options: Any):
        self._tabs: dict[int, gr.Tab] = {}  # by id: those that are sent later
        self._senders: dict[int, int] = {}  # by the id of the handler that sends it: a tab's id
        self._inside: dict[int, int] = {}  # by a component's id: the tab with which it is sent
        self._parts: dict[int, int | None] = {}  # the same of a handler
        # By session, and there by the id of a component that its browser lacks.
        self._sessions: WeakKeyDictionary[SessionState, dict[int, Config]] = WeakKeyDictionary()
        super().__init__(**options)

    def send_later(self, tabs: Iterable[gr.Tab]) -> None:
        """Send the content of these tabs when they are opened; each must have been laid out.

        All components inside of a tab must be there by now, and all handlers. A handler with an
        event in such a tab, or of its selection, listens to nothing outside of it but `arrival`.

        Raises:
            ValueError: if one does
        """
        for tab in tabs:
            tab.select(
                lambda: None, None, None, queue=False, show_progress="hidden",
                api_visibility="private",
            )  # fmt: skip
            self._senders[max(self.fns)] = tab._id
            self._tabs[tab._id] = tab
        self._inside = {id: tab for tab in self._tabs for id in self._content(self.blocks[tab])}
        self._parts = dict(self._handlers())

    # ---- what belongs to which tab

    def _content(self, block: Any) -> Iterator[int]:
        """The ids of the components inside, without those of a tab within that is sent later."""
        for child in getattr(block, "children", ()):
            yield child._id
            if child._id not in self._tabs:
                yield from self._content(child)

    def _handlers(self) -> Iterator[tuple[int, int | None]]:
        """The id of each handler, and of the tab with which it is sent; None for the page's own."""
        found: dict[int, int | None] = {}
        for id, handler in self.fns.items():
            places = {self._place(*target) for target in handler.targets if target[1] != "load"}
            if id in self._senders:
                places = {self._inside.get(self._senders[id])}
            elif handler.trigger_after is not None:
                places = {found[handler.trigger_after]}
            if len(places) > 1:
                raise ValueError(f"The handler {handler.name} has events in several tabs.")
            found[id] = next(iter(places), None)
            yield id, found[id]

    def _place(self, component: Any, event: str) -> int | None:
        """The tab with which an event of a component is sent."""
        opens = component in self._tabs and event == "select"
        return component if opens else self._inside.get(component)

    # ---- what the browser gets

    def get_config_file(self) -> Any:
        config: Any = super().get_config_file()
        if not self._tabs:
            return config
        later = self._inside.keys()
        self._components = {each["id"]: _plain(each) for each in config["components"]}
        inputs, outputs = (
            {block._id for handler in self.fns.values() for block in getattr(handler, side)}
            for side in ("inputs", "outputs")
        )
        for id in later:
            # Gradio's scripts find it out from all handlers; they have only the page's own then.
            props = self._components[id]["props"]
            written = id in outputs or props.get("value")
            props.setdefault("interactive", id in inputs or not written)
        config["dependencies"] = [
            each for each in config["dependencies"] if self._parts.get(each["id"]) is None
        ]
        # Clients look up all that a handler names; it is nowhere in the layout.
        named = {id for each in config["dependencies"] for id in each["inputs"] + each["outputs"]}
        config["components"] = [
            each if id not in later else _stub(each)
            for id, each in self._components.items()
            if id not in later or id in named
        ]
        self._prune(config["layout"])
        page = config["page"][""]
        page["components"] = [each["id"] for each in config["components"]]
        page["dependencies"] = [d["id"] for d in config["dependencies"]]
        return config

    def _prune(self, node: Config) -> Config:
        """Take the content of the tabs that are sent later out of a layout."""
        if node["id"] in self._tabs:
            node["children"] = []
        for child in node.get("children", ()):
            self._prune(child)
        return node

    def _part(self, tab: int, kept: dict[int, Config]) -> Config:
        """A tab as `gr.render` would send it, with what was kept for it, which it takes."""
        block: Any = self.blocks[tab]
        layout = {"id": tab, "children": [self._prune(_layout(child)) for child in block.children]}
        own = {tab, *self._content(block)}
        dependencies = []
        for id, place in self._parts.items():
            if place == tab:
                handler = self.fns[id].get_config()
                handler["targets"] = list(self._targets(tab, own, handler["targets"]))
                dependencies.append(handler)
        return {
            "render_id": tab,
            "layout": layout,
            "components": [self._component(id, kept.pop(id, {})) for id in own],
            "dependencies": dependencies,
        }

    def _component(self, id: int, changed: Config) -> Config:
        usual = self._components[id]
        return {**usual, "props": {**usual["props"], **changed}}

    def _targets(self, tab: int, own: set[int], targets: Sequence[Any]) -> Iterator[list[Any]]:
        """The events of a handler that are known when the tab has come.

        The arrival of the tab, which Gradio's scripts call its load, is its first selection.
        """
        for component, event in targets:
            if component in own or component is None or event == "load":
                yield [component, event]
            if (component, event) == (tab, "select"):
                yield [tab, "load"]

    # ---- what handlers get and give

    def _kept(self, session: SessionState) -> dict[int, Config]:
        """What handlers gave the components that the session's browser does not have, by id."""
        if session not in self._sessions:
            self._sessions[session] = {id: {} for id in self._inside}
        return self._sessions[session]

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], state: Any, *more: Any, **options: Any
    ) -> list[Any]:
        """Take the value that a component would show; a browser without it sends None."""
        if self._tabs and state is not None:
            kept = self._kept(state)
            for i, component in enumerate(block_fn.inputs[: len(inputs)]):
                if inputs[i] is None and (own := kept.get(component._id)) is not None:
                    usual = self._components[component._id]["props"].get("value")
                    inputs[i] = own.get("value", usual)
        return await super().preprocess_data(block_fn, inputs, state, *more, **options)

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Keep what the browser cannot show yet, and go through nothing that stays as it is."""
        if not self._tabs or state is None:
            return await super().postprocess_data(block_fn, predictions, state)
        changed = block_fn
        if isinstance(predictions, dict) and all(isinstance(key, Block) for key in predictions):
            # Gradio would make each of the other components anew.
            changed = copy(block_fn)
            changed.outputs = [block for block in block_fn.outputs if block in predictions]
            predictions = [predictions[block] for block in changed.outputs]
            if len(changed.outputs) == 1:
                (predictions,) = predictions
        data = await super().postprocess_data(changed, predictions, state)
        kept, updates = self._kept(state), {}
        for block, value in zip(changed.outputs, data, strict=True):
            if (own := kept.get(block._id)) is None:
                updates[block] = value
            elif is_prop_update(value):
                own.update({name: each for name, each in value.items() if name != "__type__"})
            elif not block.stateful:
                own["value"] = value
        return [updates.get(block, SKIP) for block in block_fn.outputs]

    async def process_api(
        self, block_fn: Any, inputs: Any, state: Any = None, *more: Any, **options: Any
    ) -> dict[str, Any]:
        output = await super().process_api(block_fn, inputs, state, *more, **options)
        id = block_fn if isinstance(block_fn, int) else block_fn._id
        if state is not None and (tab := self._senders.get(id)) is not None:
            output["render_config"] = self._part(tab, self._kept(state))
        return output


def _layout(block: Any) -> Config:
    children = getattr(block, "children", None)
    return {
        "id": block._id,
        **({} if children is None else {"children": [_layout(child) for child in children]}),
    }


def _stub(component: Config) -> Config:
    """A component that is known and not shown."""
    return {name: component[name] for name in ("id", "type", "skip_api")} | {
        "props": {"visible": False}
    }


def _plain(component: Config) -> Config:
    """A component without its documentation, unless it is a parameter of an endpoint."""
    if component["type"] == "api":
        return component
    return {name: value for name, value in component.items() if name not in DOCUMENTATION}
