"""Links to a run and its files, and the environment of its measurements."""

from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.widgets.messages import Updates
from workbench.runs.record import Run


class Kept:
    """Links to a run and its files, and its environment; its id goes into the page's address."""

    def __init__(self, prefix: str = "") -> None:
        with gr.Column(visible=False) as self.box:
            self.link = gr.HTML(elem_classes="wb-note", elem_id=f"{prefix}run-link")
            with gr.Accordion("Environment of these measurements", open=False):
                self.environment = gr.HTML(elem_id=f"{prefix}environment", elem_classes="wb-note")
        self.run_id = gr.Textbox(visible="hidden")
        address = f"(id) => WorkbenchPage.address(id, '{prefix}')"
        self.run_id.change(None, self.run_id, None, js=address, api_visibility="private")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.link, self.environment, self.run_id]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.link: words.kept(run, unkept),
            self.environment: words.environment(run),
            self.run_id: "" if unkept else run.id,
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), self.run_id: ""}
