"""Checks of input: clients may send anything, but handlers get only data that the page can send."""

from typing import Any

import gradio as gr
from gradio_client import utils as client_utils

from workbench.page.widgets.components import Drawn

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
    if isinstance(component, gr.CheckboxGroup):
        known = [choice for _, choice in component.choices]
        return isinstance(value, list) and all(each in known for each in value)
    if isinstance(component, gr.Checkbox):
        return isinstance(value, bool)
    if value is None:
        return True
    if isinstance(component, (gr.Number, gr.Slider, gr.Timer)):
        return (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and -LARGEST < value < LARGEST
        )
    if isinstance(component, (Drawn, gr.File, gr.UploadButton)):
        return isinstance(value, dict)
    if isinstance(component, (gr.Textbox, gr.Dropdown, gr.Radio, gr.HTML)):
        return isinstance(value, str)
    return True
