"""The coloured text as a Gradio component; assets/web/strip.js draws it."""

from typing import Any

import gradio as gr

SHOW = """
const root = element.firstElementChild;
const show = () => Workbench.show(root, props.value);
watch('value', show);
show();
"""


class TokenStrip(gr.HTML):
    """Panels of coloured tokens side by side, with legend, hover card and replay. Its value is what `views.view` makes.

    The template is constant, so Gradio's re-render never touches what the script drew, and no text ever passes a template.
    """

    def __init__(self, value: dict[str, Any] | None = None, **options: Any):
        super().__init__(
            value, html_template="<div></div>", js_on_load=SHOW, apply_default_css=False, padding=False, **options
        )

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}
