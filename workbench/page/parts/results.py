"""What a finished comparison looks like: coloured text, charts, table, downloads, environment. Compare and Runs both show it."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.page.parts import words as notes
from workbench.page.widgets.token_strip import TokenStrip
from workbench.runs.record import RunResult
from workbench.runs.store import Run
from workbench.show import comparison as charts
from workbench.show import strip as views
from workbench.show.files import figures_table

Updates = dict[Any, Any]  # component -> its new value

BARS = 4  # of the figures; they stand in one row


class Charts:
    """The figures and the table with the same numbers."""

    def __init__(self) -> None:
        with gr.Column(visible=False) as self.box:
            with gr.Row():
                self.plots = [_plot(260) for _ in charts.FIGURES[:BARS]]
            with gr.Row():
                self.plots += [_plot(320) for _ in charts.FIGURES[BARS:]]
            self.table = gr.HTML(elem_id="figures", elem_classes="wb-note")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, *self.plots, self.table]

    def show(self, results: Sequence[RunResult]) -> Updates:
        drawn = dict(zip(self.plots, charts.figures(results), strict=True))
        return {self.box: gr.update(visible=True), **drawn, self.table: figures_table(results)}

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False)}


def _plot(width: int) -> gr.Plot:
    return gr.Plot(show_label=False, elem_classes="chart", min_width=width)


class ResultView:
    """The results of one comparison and all that can be done with them."""

    def __init__(self) -> None:
        self.strip = TokenStrip(elem_id="panels")
        self.charts = Charts()
        with gr.Column(visible=False) as self.keep:
            self.link = gr.HTML(elem_classes="wb-note", elem_id="run-link")
            with gr.Accordion("Environment: what these figures were measured on", open=False):
                self.environment = gr.HTML(elem_id="environment")
        self.run_id = gr.Textbox(visible="hidden", elem_id="run-id")

    @property
    def outputs(self) -> list[Any]:
        return [
            self.strip, *self.charts.outputs, self.keep, self.link, self.environment, self.run_id,
        ]  # fmt: skip

    def show(self, run: Run) -> Updates:
        return {
            self.strip: views.view(views.run_panels(run), run.id),
            **self.charts.show(run.results),
            self.keep: gr.update(visible=True),
            self.link: notes.kept(run),
            self.environment: notes.facts(run),
            self.run_id: run.id,
        }

    def clear(self) -> Updates:
        return {**self.charts.clear(), self.keep: gr.update(visible=False), self.run_id: ""}
