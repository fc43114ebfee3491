"""What a batch study looks like: what was found in a sentence, its figures, two tables, and where it is kept."""

from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.parts.results import Kept
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Updates
from workbench.runs.estimates import BatchFigures, label
from workbench.runs.record import Run
from workbench.show import batch, tables

TABLE = "tokens/s (times greedy in the same kind of batch)"
COLUMNS = (
    "*decoding*: tokens/s without each batch's first round, which reads the prompts · *at once*: requests in flight at most, fewer than the batch if a "
    "memory budget makes some wait · *cache*: the most that a single request held, of one model · *same*: whether the output equals that of "
    "the first scheme measured"
)


class BatchResults:
    """`show(run)` gives updates for `outputs`; the figures follow which decoder and which time are chosen."""

    def __init__(self) -> None:
        self.run = gr.State()
        with gr.Column(visible=False) as self.box:
            self.verdict = gr.HTML(elem_id="batch-verdict", elem_classes="wb-note")
            # A run that was stopped during greedy has nothing to draw.
            with gr.Column(elem_id="batch-drawn") as self.charts:
                with gr.Row():
                    self.decoder = gr.Radio([], label="Figures of", elem_id="batch-decoder", scale=2, min_width=320)
                    self.decoding = gr.Checkbox(
                        label="Leave the reading of prompts out",
                        info="As the paper counts. There is no such figure if prompts are read while others decode: dynamic batches, chunks, a budget.",
                        elem_id="batch-decoding",
                        min_width=320,
                    )
                with gr.Row():
                    self.plots = []
                    for title, says, _ in batch.CARDS:
                        with gr.Column(min_width=340):
                            gr.Markdown(f"### {title}\n\n{says}", elem_classes="wb-note")
                            self.plots.append(gr.Plot(show_label=False, container=False, elem_classes="chart"))
                self.paper = gr.Markdown(elem_id="batch-paper", elem_classes="wb-wide")
            self.table = gr.HTML(elem_id="batch-figures", elem_classes="wb-note")
            gr.Markdown(COLUMNS, elem_classes="wb-note")
        self.kept = Kept("batch-")
        chosen = [self.run, self.decoder, self.decoding]
        gr.on([self.decoder.input, self.decoding.input], self._draw, chosen, self.drawn, **QUIET)

    @property
    def drawn(self) -> list[Any]:
        """What follows the choice of decoder and time."""
        return [*self.plots, self.paper]

    @property
    def outputs(self) -> list[Any]:
        shown = [self.verdict, self.charts, self.decoder, *self.drawn, self.table]
        return [self.run, self.box, *shown, *self.kept.outputs]

    def show(self, run: Run, decoder: str | None = None, decoding: bool = False) -> Updates:
        """The run, also one that is still growing; `decoder` and `decoding` are what the visitor looks at."""
        decoders = BatchFigures(run).decoders
        decoder = decoder if decoder in decoders else next(iter(decoders), None)
        return {
            self.run: run,
            self.box: gr.update(visible=True),
            self.verdict: "".join(map(words.note, tables.findings(run))) + words.source(run) + words.timing(run),
            self.charts: gr.update(visible=bool(decoders)),
            self.decoder: gr.update(choices=[(label(d), d) for d in decoders], value=decoder),
            **dict(zip(self.drawn, self._draw(run, decoder, decoding), strict=True)),
            self.table: tables.markup(tables.figures(run)),
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}

    def _draw(self, run: Run | None, decoder: str | None, decoding: bool) -> list[Any]:
        if run is None or decoder is None:
            return [gr.skip()] * len(self.drawn)
        figures = BatchFigures(run)
        drawn = [draw(figures, decoder, decoding) for _, _, draw in batch.CARDS]
        table = tables.markdown(tables.paper_table(figures, decoder, decoding))
        return [*drawn, f"### {label(decoder)}: {TABLE}\n\n{table}"]
