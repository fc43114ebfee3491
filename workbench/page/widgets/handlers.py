"""Handlers of the page: their options, checks of what clients send, and forms with messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr
from gradio_client import utils as client_utils

from decoders.errors import is_whole
from workbench.page.widgets.components import Drawn, OpenBoxes
from workbench.page.widgets.later import arrival

# Options of handlers, which run outside the queue or on the one device.
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
DEVICE: dict[str, Any] = {
    "concurrency_id": "device",
    "concurrency_limit": 1,
    "api_visibility": "private",
}
Values = Mapping[Any, Any]  # component -> the visitor's input
Updates = dict[Any, Any]  # component -> its new value
LARGEST = 1e300  # number; JSON has larger ones, and infinities


class CheckedBlocks(gr.Blocks):
    """A page that refuses, in a sentence, data that it could not have sent itself."""

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *more: Any, **options: Any
    ) -> list[Any]:
        client_utils.traverse(inputs, _refuse_address, client_utils.is_file_obj_with_meta)
        if not all(map(fits, block_fn.inputs, inputs)):
            raise gr.Error("The page cannot send this; reload it.", print_exception=False)
        return await super().preprocess_data(block_fn, inputs, *more, **options)


def _refuse_address(file: dict[str, Any]) -> None:
    """Refuse an address, which Gradio would download, however large the file is."""
    if client_utils.is_http_url_like(str(file["path"])):
        raise gr.Error("An address is not a file; upload one.", print_exception=False)


def fits(component: Any, value: Any) -> bool:
    """Whether the page could have this value in this component."""
    if isinstance(component, OpenBoxes):
        return isinstance(value, list) and all(map(is_whole, value))
    if isinstance(component, gr.CheckboxGroup):
        known = [choice for _, choice in component.choices]
        return isinstance(value, list) and all(each in known for each in value)
    if isinstance(component, gr.Checkbox):
        return isinstance(value, bool)
    if value is None:
        return True
    if isinstance(component, (gr.Number, gr.Slider, gr.Timer)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and -LARGEST < value < LARGEST
    if isinstance(component, (Drawn, gr.File, gr.UploadButton)):
        return isinstance(value, dict)
    if isinstance(component, (gr.Textbox, gr.Dropdown, gr.Radio, gr.HTML)):
        return isinstance(value, str)
    return True


class Faults(Exception):
    """The faults of a form: a sentence for each field that cannot be used."""

    def __init__(self, messages: Mapping[Any, str]):
        super().__init__("; ".join(messages.values()))
        self.messages = messages


class NotedForm:
    """The fields' values as one value, `values`, and a message or none for each field, `faults`.

    Gradio wipes the messages at a handler's inputs when the handler starts; whenever any handler
    answers, it wipes those at its inputs and at the component that shows its progress. So a field
    change answered after Run erased the message. Therefore no handler on the server takes a field
    as its input, and those that fill fields are attached with `filling`. Only the browser sets and
    removes messages: they stay until their field changes or the visitor asks again.

    Args:
        fields: the inputs of the form
        refreshing: further events after which `values` are noted again. That changes them even if
            they are as before, so who sums the form up listens to nothing else, and older values
            never come after newer ones.
    """

    def __init__(self, fields: Sequence[Any], refreshing: Sequence[Any] = ()):
        self.fields = fields
        self.values = gr.JSON([field.value for field in fields], visible="hidden")
        self.faults = gr.JSON(visible="hidden")
        self.filling: dict[str, Any] = {**QUIET, "show_progress_on": self.values}
        # One handler for all: before the browser shows the page, it goes through every handler for
        # every component.
        noted = [self.values, *fields]
        gr.on(
            [arrival(), *refreshing, *(field.change for field in fields)],
            None,
            noted,
            noted,
            js=f"WorkbenchPage.note({self.values._id})",
            api_visibility="private",
        )

    @property
    def asked(self) -> str:
        """The JavaScript of a handler whose first input is `values`: it gets the last change, too.

        Gradio gathers the inputs of a click before it has carried out the change just before it.
        """
        return f"WorkbenchPage.asked({self.values._id})"

    def read(self, values: Any) -> Values:
        """The values by field; raises `gr.Error` for values that no form sends."""
        known = isinstance(values, list) and len(values) == len(self.fields)
        if not known or not all(map(_filled, self.fields, values)):
            raise gr.Error(
                "These are not the values of this form; reload the page.", print_exception=False
            )
        return dict(zip(self.fields, values, strict=True))

    def told(self, faults: Mapping[Any, str]) -> Updates:
        """A handler's updates about faults, which `tell` shows once the handler has answered."""
        return {self.faults: [faults.get(field) for field in self.fields]}

    def tell(self, handler: Any) -> None:
        handler.then(
            None,
            self.faults,
            self.fields,
            js="(messages) => WorkbenchPage.tell(messages)",
            api_visibility="private",
        )


def _filled(field: Any, value: Any) -> bool:
    """Whether a form could have this value in this field; only a number's may be missing."""
    return fits(field, value) and (value is not None or isinstance(field, gr.Number))
