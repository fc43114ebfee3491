"""A form whose values are noted in the browser, and whose messages stay at their fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.page.widgets.handlers import QUIET

Values = Mapping[Any, Any]  # component -> what the visitor put there
Updates = dict[Any, Any]  # component -> its new value


class Faults(Exception):
    """What is wrong with a form: a sentence for each field that cannot be used."""

    def __init__(self, messages: Mapping[Any, str]):
        super().__init__("; ".join(messages.values()))
        self.messages = messages


class NotedForm:
    """The fields' values as one value, `values`, and a message or none for each field, `faults`.

    Gradio wipes the messages at a handler's inputs when the handler starts, and at its inputs and at what shows its progress whenever
    any handler answers: a field change answered after Run erased the message. So no handler on the server takes a field as its
    input; those that fill fields are attached with `filling`, and messages are set and taken away in the browser alone: they stay
    until their field changes or the visitor asks again.
    """

    def __init__(self, fields: Sequence[Any]):
        self.fields = fields
        self.values = gr.JSON([field.value for field in fields], visible="hidden")
        self.faults = gr.JSON(visible="hidden")
        self.filling: dict[str, Any] = {**QUIET, "show_progress_on": self.values}
        # One handler for all: the browser goes through every handler for every component before it shows the page.
        noted, note = [self.values, *fields], "(...values) => WorkbenchPage.note(...values)"
        gr.on([field.change for field in fields], None, noted, noted, js=note, api_visibility="private")

    def read(self, values: Any) -> Values:
        """Raises `gr.Error` for values that no form sends: a client may send anything."""
        known = isinstance(values, list) and len(values) == len(self.fields)
        if not known or not all(map(_fits, self.fields, values)):
            raise gr.Error("These are not the values of this form; reload the page.", print_exception=False)
        return dict(zip(self.fields, values, strict=True))

    def told(self, faults: Mapping[Any, str]) -> Updates:
        """What a handler returns about the faults; `tell` shows it once the handler has answered."""
        return {self.faults: [faults.get(field) for field in self.fields]}

    def tell(self, handler: Any) -> None:
        tell = "(messages) => WorkbenchPage.tell(messages)"
        handler.then(None, self.faults, self.fields, js=tell, api_visibility="private")


def _fits(field: Any, value: Any) -> bool:
    """Whether the page could have such a value in this field."""
    if isinstance(field, gr.CheckboxGroup):
        known = [choice for _, choice in field.choices]
        return isinstance(value, list) and all(each in known for each in value)
    if isinstance(field, gr.Checkbox):
        return isinstance(value, bool)
    if isinstance(field, gr.Number):
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    return isinstance(value, str)
