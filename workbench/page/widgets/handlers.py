"""Handlers of the page: their options, forms with messages at their fields, and files."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError

# Options of handlers, which run outside the queue or on the one device.
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
DEVICE: dict[str, Any] = {
    "concurrency_id": "device",
    "concurrency_limit": 1,
    "api_visibility": "private",
}
READ_ONCE: dict[str, Any] = {"preprocess": False}  # for a handler that calls `given`
Values = Mapping[Any, Any]  # component -> the visitor's input
Updates = dict[Any, Any]  # component -> its new value


class Faults(Exception):
    """The faults of a form: a sentence for each field that cannot be used."""

    def __init__(self, messages: Mapping[Any, str]):
        super().__init__("; ".join(messages.values()))
        self.messages = messages


class NotedForm:
    """The fields' values as one value, `values`, and a message or none for each field, `faults`.

    The browser puts a message at a field, and takes it away when the field changes or the visitor
    asks again. Gradio's own messages go as soon as any handler with that input answers, and cannot
    be seen at fields in a sheet that is shut.

    Args:
        fields: the inputs of the form; each has an `elem_id`
        name: tells forms apart
        refreshing: further events after which `values` are noted again. That changes them even if
            they are as before, so who sums the form up listens to nothing else, and older values
            never come after newer ones.
    """

    def __init__(self, fields: Sequence[Any], name: str, refreshing: Sequence[Any] = ()):
        self.fields, self.name = fields, name
        self.values = gr.JSON([field.value for field in fields], visible="hidden")
        self.faults = gr.JSON(visible="hidden")
        self.filling: dict[str, Any] = {**QUIET, "show_progress_on": self.values}
        # One handler for all: before the browser shows the page, it goes through every handler for
        # every component.
        gr.on([*refreshing, *(field.change for field in fields)], **self.noting)

    @property
    def noting(self) -> dict[str, Any]:
        """A handler that notes the fields, as options of an event."""
        ids = [field.elem_id for field in self.fields]
        return {
            "fn": None,
            "inputs": self.fields,
            "outputs": self.values,
            "js": f"WorkbenchPage.note('{self.name}', {ids})",
            "api_visibility": "private",
        }

    @property
    def asked(self) -> str:
        """The JavaScript of a handler whose first input is `values`: it gets the last change, too.

        Gradio gathers the inputs of a click before it has carried out the change just before it.
        """
        return f"WorkbenchPage.asked('{self.name}')"

    def read(self, values: Any) -> Values:
        """The values by field; raises `gr.Error` for values that no form sends."""
        if not isinstance(values, list) or len(values) != len(self.fields):
            raise gr.Error(
                "These are not the values of this form; reload the page.", print_exception=False
            )
        return dict(zip(self.fields, values, strict=True))

    def told(self, faults: Mapping[Any, str]) -> Updates:
        """A handler's updates about faults, which `tell` shows once the handler has answered."""
        return {self.faults: {field.elem_id: says for field, says in faults.items()}}

    def tell(self, handler: Any) -> None:
        handler.then(
            None, self.faults, None, js=f"WorkbenchPage.tell('{self.name}')",
            api_visibility="private",
        )  # fmt: skip


@dataclass(frozen=True)
class Given:
    """The name and the content of a visitor's file."""

    name: str
    content: bytes


def given(data: Mapping[str, Any] | None) -> Given | None:
    """The content of a file that was uploaded, which goes from the disk.

    Args:
        data: the value as it was sent; to make a path of it, Gradio leaves an empty file behind

    Raises:
        InputError: if it is gone: of two visitors who upload the same file at once, one comes late
    """
    if data is None:
        return None
    file = Path(data["path"])
    try:
        return Given(file.name, file.read_bytes())
    except OSError:
        raise InputError("The file did not arrive; upload it again.") from None
    finally:
        file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            file.parent.rmdir()  # it is named after the content
