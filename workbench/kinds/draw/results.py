"""Draws on the page: findings in sentences, a tree for each decoder, figures, and links."""

from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.parts.kept import Kept
from workbench.page.widgets.messages import Updates
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.show import draws, verdicts
from workbench.show.tables import markup

AGAIN = "Again with other seeds"


class DrawResults:
    def __init__(self) -> None:
        with gr.Column(visible=False) as self.box:
            self.headline = gr.HTML(elem_id="draw-headline", elem_classes="wb-note")
            self.again = gr.Button(AGAIN, size="sm", scale=0, elem_id="draw-more")
            self.trees = gr.HTML(elem_id="draw-trees")
            self.table = gr.HTML(elem_id="draw-figures", elem_classes="wb-note")
            self.timing = gr.HTML(elem_id="draw-timing", elem_classes="wb-note")
            self.proof = gr.HTML(elem_classes="wb-note")
        self.kept = Kept("draw-")
        self.shown = gr.State("")  # the run that draws can be added to

    @property
    def outputs(self) -> list[Any]:
        return [
            self.box,
            self.headline,
            self.again,
            self.trees,
            self.table,
            self.timing,
            self.proof,
            self.shown,
            *self.kept.outputs,
        ]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        if not run.results:
            return self.clear()
        more = not unkept and run.settings.get("temperature") != 0
        return {
            **self.drawn(run),
            self.again: gr.update(visible=more),
            self.shown: run.id if more else "",
            self.timing: words.timing(run),
            **self.kept.show(run, unkept),
        }

    def drawn(self, run: Run) -> Updates:
        """Updates that show the decoders that are done so far."""
        return {
            self.box: gr.update(visible=True),
            self.headline: verdicts.headline(run),
            self.trees: draws.trees(run),
            self.table: markup(draws.table(run)),
            self.proof: draws.proof(run),
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}


class Live:
    """The trees of a study while it runs: each decoder's as soon as it is done."""

    def __init__(self, results: DrawResults):
        self._results = results

    def begin(self) -> Updates:
        return self._results.clear()

    def update(self, event: Started | Progress | Finished) -> Updates:
        return self._results.drawn(event.run) if isinstance(event, Finished) else {}
