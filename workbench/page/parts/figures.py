"""The default results of a tab: the figures of a run, and links to it."""

from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.parts.kept import Kept
from workbench.page.widgets.messages import Updates
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.show import tables


class Figures:
    """A table of figures, notes on timings, and links; shows a run while it grows, too."""

    def __init__(self, prefix: str):
        with gr.Column(visible=False) as self.box:
            self.table = gr.HTML(elem_id=f"{prefix}figures", elem_classes="wb-note")
            self.timing = gr.HTML(elem_id=f"{prefix}timing", elem_classes="wb-note")
        self.kept = Kept(prefix)

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.table, self.timing, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        return {**self.growing(run), **self.kept.show(run, unkept)}

    def growing(self, run: Run) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.table: tables.markup(tables.figures(run)),
            self.timing: words.timing(run),
        }

    def follow(self) -> "Figures":
        return self

    def begin(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}

    def update(self, event: Started | Progress | Finished) -> Updates:
        return self.growing(event.run) if isinstance(event, Finished) else {}
