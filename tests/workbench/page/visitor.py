"""A visitor without a browser: fires events at a page and passes answers on as Gradio would."""

import tempfile
from collections import deque
from collections.abc import Iterator
from inspect import isgenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from gradio.helpers import special_args

from workbench.show.looks import FAMILIES

ELSEWHERE = "203.0.113.1"  # a visitor whose browser does not share the machine's cores


class Visitor:
    """Opens the page, and keeps all that is shown.

    Of the page's JavaScript it knows only how a form is noted and what is shown at its fields.

    Attributes:
        request: as Gradio passes it to handlers
        event: likewise
        breakdowns: exceptions that handlers raised; Gradio shows them in a corner of the page
        rendered: the parts that the last call of a `gr.render` made
    """

    def __init__(self, page: gr.Blocks, query: str = "", session: str = "a visitor"):
        self.page = page
        client, params = SimpleNamespace(host=ELSEWHERE), dict(parse_qsl(query))
        self.request = SimpleNamespace(session_hash=session, client=client, query_params=params)
        self.event: gr.EventData | None = None
        self.breakdowns: list[Exception] = []
        self.rendered: list[Any] = []
        self._messages: dict[str, str] = {}
        self._shown: dict[Any, dict[str, Any]] = {}
        self.fire(page, "load")

    def find(self, name: str) -> Any:
        """The component with this `elem_id`."""
        return next(block for block in self.page.blocks.values() if block.elem_id == name)

    def _component(self, which: Any) -> Any:
        """A component, given itself or by its `elem_id`, as in all of the following."""
        return self.find(which) if isinstance(which, str) else which

    def value(self, which: Any) -> Any:
        component = self._component(which)
        return self._shown.get(component, {}).get("value", component.value)

    def visible(self, which: Any) -> Any:
        component = self._component(which)
        return self._shown.get(component, {}).get("visible", component.visible)

    def told(self, which: Any, name: str) -> Any:
        """The last value that handlers set another property to; None if they have not."""
        return self._shown.get(self._component(which), {}).get(name)

    def message(self, name: str) -> str | None:
        """The message at a field."""
        return self._messages.get(name)

    def put(self, which: Any, value: Any) -> None:
        """Type a value into a field, or choose it."""
        component = self._component(which)
        self._shown.setdefault(component, {})["value"] = value
        for event in ("input", "change"):
            self.fire(component, event)

    def ticked(self, name: str) -> list[str]:
        """The decoders that are ticked."""
        return [each for family in FAMILIES for each in self.value(f"{name}-{family.name}")]

    def tick(self, name: str, decoders: list[str]) -> None:
        """Tick these decoders and no others."""
        for family in FAMILIES:
            chosen = [each for each in family.decoders if each in decoders]
            self.put(f"{name}-{family.name}", chosen)

    def give(self, name: str, path: Any) -> None:
        """Upload a file."""
        component = self.find(name)
        file = Path(tempfile.mkdtemp()) / path.name  # whoever reads it deletes it
        file.write_bytes(path.read_bytes())
        self._shown.setdefault(component, {})["value"] = {"path": str(file)}
        self.fire(component, "upload")

    def open(self, tab: str) -> None:
        """Select a tab."""
        tabs = (block for block in self.page.blocks.values() if isinstance(block, gr.Tab))
        self.fire(next(block for block in tabs if block.label == tab), "select")

    def press(self, name: str) -> None:
        self.fire(name, "click")

    def fire(self, which: Any, event: str) -> None:
        deque(self.firing(which, event), maxlen=0)

    def firing(self, which: Any, event: str) -> Iterator[Any]:
        """The same, pausing at each answer of a handler."""
        component = self._component(which)
        for function in list(self.page.fns.values()):
            if (component._id, event) in function.targets:
                yield from self._called(function)

    def _called(self, function: Any) -> Iterator[Any]:
        changed: list[Any] = []
        inputs = [self.value(component) for component in function.inputs]
        if function.js and "WorkbenchPage.note" in function.js:
            changed += self._apply(function.outputs, inputs)
        elif function.js and "WorkbenchPage.tell" in function.js:
            self._messages = inputs[0] or {}
        elif function.renderable:
            with gr.Blocks() as rendered:
                function.renderable.fn(*inputs)
            self.rendered = list(rendered.blocks.values())
        elif function.fn is not None:
            try:
                answers = function.fn(
                    *special_args(function.fn, inputs, self.request, self.event)[0]
                )
                for answer in answers if isgenerator(answers) else [answers]:
                    changed += self._apply(function.outputs, answer)
                    yield answer
            except Exception as error:
                # the others are messages to the visitor
                if not isinstance(error, gr.Error) or error.print_exception:
                    self.breakdowns.append(error)
        for component in dict.fromkeys(changed):
            yield from self.firing(component, "change")
        for other in list(self.page.fns.values()):
            if other.trigger_after == function._id:
                yield from self._called(other)

    def _apply(self, outputs: list[Any], answer: Any) -> list[Any]:
        """Show what a handler gave; the components whose value has changed."""
        if not isinstance(answer, dict) or not all(key in outputs for key in answer):
            answer = dict(
                zip(outputs, [answer] if len(outputs) == 1 else answer or [], strict=bool(answer))
            )
        changed = []
        for component, update in answer.items():
            if not (isinstance(update, dict) and update.get("__type__") == "update"):
                update = {"value": update}
            if "value" in update and update["value"] != self.value(component):
                changed.append(component)
            self._shown.setdefault(component, {}).update(update)
        return changed
