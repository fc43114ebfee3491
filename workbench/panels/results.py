"""What a finished comparison looks like: coloured text, charts, table, downloads, environment. Compare and Runs both show it."""

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from workbench import charts, export, views
from workbench.numbers import table
from workbench.runs import Run, RunResult
from workbench.token_strip import TokenStrip

Updates = dict[Any, Any]  # component -> its new value

FIGURES = (
    charts.compare_bars,
    charts.speed_against_perplexity,
    charts.round_times,
    charts.acceptance_by_position,
)


class Charts:
    """The figures and the table with the same numbers."""

    def __init__(self, visible: bool = False):
        with gr.Column(visible=visible) as self.box:
            self.plots = [gr.Plot(show_label=False, elem_classes="chart")]
            with gr.Row():
                self.plots += [gr.Plot(show_label=False, elem_classes="chart", min_width=320) for _ in FIGURES[1:]]
            self.table = gr.Dataframe(
                interactive=False, wrap=True, show_label=False, buttons=["copy", "fullscreen"], elem_id="figures"
            )

    @property
    def outputs(self) -> list[Any]:
        return [self.box, *self.plots, self.table]

    def show(self, results: Sequence[RunResult]) -> Updates:
        heads, rows = table(results)
        figures = {plot: draw(results) for plot, draw in zip(self.plots, FIGURES, strict=True)}
        return {self.box: gr.update(visible=True), **figures, self.table: {"headers": heads, "data": rows}}

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False)}


class ResultView:
    """The results of one comparison and all that can be done with them."""

    def __init__(self) -> None:
        self.strip = TokenStrip(elem_id="panels")
        self.charts = Charts()
        with gr.Column(visible=False) as self.keep:
            with gr.Row(elem_classes="keep"):
                self.link = gr.HTML(elem_classes="wb-note", elem_id="run-link")
                self.downloads = {
                    kind: gr.DownloadButton(f"Download {kind.upper()}", size="sm", min_width=120, elem_id=f"download-{kind}")
                    for kind in export.WRITERS
                }
            with gr.Accordion("Environment: what these figures were measured on", open=False):
                self.environment = gr.HTML(elem_id="environment")
        self.run_id = gr.Textbox(visible="hidden", elem_id="run-id")

    @property
    def outputs(self) -> list[Any]:
        return [
            self.strip, *self.charts.outputs, self.keep, self.link, *self.downloads.values(), self.environment, self.run_id,
        ]  # fmt: skip

    def show(self, run: Run) -> Updates:
        return {
            self.strip: views.view(views.run_panels(run), run.id),
            **self.charts.show(run.results),
            self.keep: gr.update(visible=True),
            self.link: f'Kept as <a href="?run={run.id}">run {run.id}</a>: this link reopens it.',
            **{button: _written(run, kind) for kind, button in self.downloads.items()},
            self.environment: environment_card(run),
            self.run_id: run.id,
        }

    def clear(self) -> Updates:
        return {**self.charts.clear(), self.keep: gr.update(visible=False), self.run_id: ""}


def environment_card(run: Run) -> str:
    """The run's environment as a list of terms; everything in it is escaped."""
    rows = [("prompt", run.prompt), ("settings", _flat({k: v for k, v in run.settings.items() if not isinstance(v, dict)}))]
    rows += [(name, _flat(own)) for name, own in run.settings.items() if isinstance(own, dict) and own]
    rows += [(name, _flat(value)) for name, value in run.environment.items()]
    rows.append(("created", run.created))
    items = "".join(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in rows)
    return f'<div class="wb-note"><dl>{items}</dl></div>'


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_flat(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return " ".join(map(_flat, value))
    return "–" if value is None else str(value)


def _written(run: Run, kind: str) -> str:
    """The export as a file for its download button; Gradio copies it into its cache and sweeps that."""
    path = Path(tempfile.mkdtemp(prefix="workbench-")) / f"run-{run.id}.{kind}"
    path.write_text(export.WRITERS[kind](run), encoding="utf-8")
    return str(path)
