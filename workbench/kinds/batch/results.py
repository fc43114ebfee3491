"""A batch study on the page: findings in sentences, charts, two tables and links to the run.

Below them stands a card with runs that were measured beforehand.
"""

import math
import time
from typing import Any

import gradio as gr

from workbench.kinds.batch.view import acceptance, findings, paper_table, verdict
from workbench.page.parts import words
from workbench.page.parts.results import Figures, plot
from workbench.page.widgets.handlers import QUIET, Updates
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.figures import BatchFigures, label
from workbench.runs.record import Run
from workbench.runs.recorded import BatchRecording
from workbench.show import batch, tables

# Between two drawings of a study that grows: one takes a browser a quarter of a second, on cores
# that decode.
DRAWN_SECONDS = 2.0
SAYS = "Tokens/s without the reading of prompts (times greedy in the same kind of batch)."
COLUMNS = (
    "*decoding*: tokens/s without each batch's first round, which reads the prompts · *at once*: "
    "the most requests in flight, fewer than the batch size if a memory budget makes some wait · "
    "*cache*: the most that a single request held for one model · *same*: whether the output "
    "equals that of the first scheme measured"
)


class BatchResults(Figures):
    """The findings, charts and tables of a run; charts follow the chosen decoder and time."""

    def lay_out(self, prefix: str) -> list[Any]:
        self.run = gr.State()
        self.verdict = gr.HTML(elem_id="batch-verdict", elem_classes="wb-note")
        # A run that was stopped during greedy has nothing to draw.
        with gr.Column(elem_id="batch-drawn") as self.charts:
            with gr.Row():
                self.decoder = gr.Radio(
                    [], label="Figures of", elem_id="batch-decoder", scale=2, min_width=320
                )
                self.decoding = gr.Checkbox(
                    label="Leave out the reading of prompts",
                    info="As in the paper. Not available when prompts are read during decoding "
                    "(dynamic batches, prefill chunks, memory budget).",
                    elem_id="batch-decoding",
                    min_width=320,
                )
            with gr.Row():
                plots = []
                for title, says, _ in batch.CARDS:
                    with gr.Column(min_width=340):
                        gr.Markdown(f"### {title}\n\n{says}", elem_classes="wb-note")
                        plots.append(plot(elem_classes="chart"))
            # The parts that follow the choice of decoder and time.
            self.shapes = [*plots, gr.Markdown(elem_id="batch-paper", elem_classes="wb-wide")]
        self.table = gr.HTML(elem_id="batch-figures", elem_classes="wb-note")
        gr.Markdown(COLUMNS, elem_classes="wb-note")
        gr.on(
            [self.decoder.input, self.decoding.input],
            self._draw,
            [self.run, self.decoder, self.decoding],
            self.shapes,
            **QUIET,
        )
        return [self.run, self.verdict, self.charts, self.decoder, *self.shapes, self.table]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        return super().show(run, unkept, *looked_at) if run.results else {}

    def growing(self, run: Run, *looked_at: Any) -> Updates:
        decoder, decoding = looked_at or (None, False)
        decoders = BatchFigures(run).decoders
        decoder = decoder if decoder in decoders else next(iter(decoders), None)
        return {
            self.run: run,
            self.box: gr.update(visible=True),
            self.verdict: "".join(map(words.note, findings(run)))
            + words.source(run)
            + words.timing(run),
            self.charts: gr.update(visible=bool(decoders)),
            self.decoder: gr.update(choices=[(label(d), d) for d in decoders], value=decoder),
            **dict(zip(self.shapes, self._draw(run, decoder, decoding), strict=True)),
            self.table: tables.markup(tables.figures(run)),
        }

    def _draw(self, run: Run | None, decoder: str | None, decoding: bool) -> list[Any]:
        if run is None or decoder is None:
            return [gr.skip()] * len(self.shapes)
        figures = BatchFigures(run)
        table = tables.markdown(paper_table(figures, decoder, decoding))
        return [
            *(card.draw(figures, decoder, decoding) for card in batch.CARDS),
            f"### {label(decoder)}: tokens/s (times greedy in the same kind of batch)\n\n{table}",
        ]


class LiveBatch:
    """The figures of a batch study while it grows.

    Args:
        results: the part of the page that shows them
        decoder: the decoder that the visitor looks at
        decoding: whether the visitor leaves out the reading of prompts
    """

    def __init__(self, results: BatchResults, decoder: str | None, decoding: bool):
        self._results, self._looked_at = results, (decoder, decoding)
        self._drawn = -math.inf  # the clock of a machine that has just started is small

    def begin(self) -> Updates:
        return self._results.begin()

    def update(self, event: Started | Progress | Finished) -> Updates:
        if not isinstance(event, Finished) or time.monotonic() < self._drawn + DRAWN_SECONDS:
            return {}
        self._drawn = time.monotonic()
        return self._results.growing(event.run, *self._looked_at)


def lay_out_card(recording: BatchRecording) -> None:
    with gr.Accordion(
        "Measured beforehand: the cost of each scheme", open=False, elem_id="batch-card"
    ):
        for run in recording.runs:
            figures = BatchFigures(run)
            each = [_table(run, figures, decoder) for decoder in figures.decoders]
            with gr.Row():
                with gr.Column(scale=4, min_width=340):
                    gr.Markdown("\n\n".join(each), elem_classes="wb-wide")
                with gr.Column(scale=1, min_width=260):
                    gr.Markdown(
                        "### Acceptance\n\nEach point is a sample: the tokens that it gains per "
                        "round.",
                        elem_classes="wb-note",
                    )
                    gr.Plot(
                        batch.acceptance(figures),
                        show_label=False,
                        container=False,
                        elem_classes="chart",
                    )
        run, load = recording.runs[0], ", ".join(f"{value:.2f}" for value in recording.load)
        where = run.environment
        gr.Markdown(
            f"{run.created[:10]} · `{recording.command}` · {where['device_name']}, "
            f"threads: {where['threads']}, CPUs: {where['cpus']} · {where['dtype']} · "
            f"torch {where['torch']} · load before it {load}",
            elem_classes="wb-note",
        )


def _table(run: Run, figures: BatchFigures, decoder: str) -> str:
    return (
        f"### {label(decoder)} on {run.title}, {run.settings['max_new_tokens']} tokens each\n\n"
        f"{SAYS}\n\n{tables.markdown(paper_table(figures, decoder, decoding=True))}\n\n"
        f"{verdict(run)} {acceptance(figures, decoder)}"
    )
