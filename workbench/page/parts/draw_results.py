"""What many draws look like: what they say in sentences, a tree for each decoder, the figures, and where the run is kept."""

from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.parts.results import Kept
from workbench.page.widgets.messages import Updates
from workbench.runs.record import Run
from workbench.show import draws
from workbench.show.tables import markup


class DrawResults:
    def __init__(self) -> None:
        with gr.Column(visible=False) as self.box:
            self.headline = gr.HTML(elem_id="draw-headline", elem_classes="wb-note")
            self.trees = gr.HTML(elem_id="draw-trees")
            self.table = gr.HTML(elem_id="draw-figures", elem_classes="wb-note")
            self.timing = gr.HTML(elem_id="draw-timing", elem_classes="wb-note")
            self.proof = gr.HTML(elem_classes="wb-note")
        self.kept = Kept("draw-")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.headline, self.trees, self.table, self.timing, self.proof, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        if not run.results:
            return self.clear()
        return {**self.drawn(run), self.timing: words.timing(run), **self.kept.show(run, unkept)}

    def drawn(self, run: Run) -> Updates:
        """The decoders that are done so far."""
        return {
            self.box: gr.update(visible=True),
            self.headline: draws.headline(run),
            self.trees: draws.trees(run),
            self.table: markup(draws.table(run)),
            self.proof: draws.proof(run),
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}
