"""A form that the browser notes as it stands, and whose faults stay at their fields."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.page.parts.form import Values
from workbench.page.widgets.handlers import QUIET

NOTE = "(...values) => [values, {__type__: 'update', loading_status: {validation_error: null}}]"
TELL = """(messages) => messages.map((message) => (
    {__type__: 'update', loading_status: {validation_error: message, show_validation_error: true}}
))"""


class NotedForm:
    """The fields' values as one value, `values`, and a message or none for each field, `faults`.

    Gradio wipes the messages at a handler's inputs when the handler starts, and at its inputs and at what shows its progress
    whenever any handler answers: a message was gone unread if the answer to a change came after that to Run. So no handler on the
    server takes a field as its input; those that fill fields are attached by `filling`, and messages are set and taken away in the
    browser alone: they stay until their field changes or the visitor asks again.
    """

    def __init__(self, fields: Sequence[Any]):
        self.fields = fields
        self.values = gr.JSON([field.value for field in fields], visible="hidden")
        self.faults = gr.JSON(visible="hidden")
        self.filling: dict[str, Any] = {**QUIET, "show_progress_on": self.values}
        for field in fields:
            field.change(None, fields, [self.values, field], js=NOTE, api_visibility="private")

    def read(self, values: Sequence[Any]) -> Values:
        return dict(zip(self.fields, values, strict=True))

    def told(self, faults: Values) -> dict[Any, Any]:
        """What a handler returns about the faults; `tell` it when that has come."""
        return {self.faults: [faults.get(field) for field in self.fields]}

    def tell(self, handler: Any) -> None:
        handler.then(None, self.faults, self.fields, js=TELL, api_visibility="private")
