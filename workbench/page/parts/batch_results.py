"""What a batch experiment looks like: what was found in a sentence, six figures, two tables, downloads, environment."""

import base64
from collections.abc import Callable
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from workbench.page.downloads import TYPES
from workbench.page.parts import words as notes
from workbench.page.parts.results import Updates
from workbench.page.widgets.handlers import QUIET
from workbench.show import batch as batch_charts
from workbench.show import tables as batch_table
from workbench.studies.batch_records import BatchRun

# One card a figure: title, what it says, and how it is drawn for a run, the decoder chosen, and whether prompts are left out.
CARDS: tuple[tuple[str, str, Callable[[BatchRun, str, bool], go.Figure]], ...] = (
    ("Speed-up over greedy", "Tokens/s over greedy decoding's at the same batch size: above 1 the drafts pay.", batch_charts.speed_up),
    ("Speed", "New tokens over seconds, all requests of a batch together.", batch_charts.speed),
    (
        "Time of a round", "Every pad is computed, so a round takes longer the more it holds; prompts left out.",
        lambda run, decoder, _: batch_charts.round_time(run, decoder),
    ),
    (
        "Padding", "Pads over the longest acceptance of a round, the vanilla way.",
        lambda run, *_: batch_charts.padding(run),
    ),
    (
        "Acceptance", "Each point is a sample: the tokens that a round gains it. A wide spread is what padding fills up.",
        lambda run, *_: batch_charts.acceptance(run),
    ),
    (
        "The slowest of a batch", "A static batch waits for its sample of the least acceptance.",
        lambda run, *_: batch_charts.least_acceptance(run),
    ),
)  # fmt: skip

TABLE = "tokens/s (times greedy at the same batch size)"
COLUMNS = (
    "*decoding*: tokens/s without each batch's first round, which reads the prompts · *at once*: requests in flight at most, fewer than the batch where a "
    "memory budget lets some wait · *cache*: the most that a single request held, of one model · *same*: whether the tokens are those that "
    "every way must give"
)


class BatchResults:
    """`show(run)` gives updates for `outputs`; the figures follow which decoder and which time are chosen."""

    def __init__(self) -> None:
        self.run = gr.State()
        with gr.Column(visible=False) as self.box:
            self.verdict = gr.HTML(elem_id="batch-verdict", elem_classes="wb-note")
            with gr.Row():
                self.decoder = gr.Radio([], label="Figures of", elem_id="batch-decoder", scale=2, min_width=320)
                self.decoding = gr.Checkbox(
                    label="Leave the reading of prompts out",
                    info="As the paper counts. No such figure where prompts are read beside decoding: dynamic batches, chunks, a budget.",
                    elem_id="batch-decoding",
                    min_width=320,
                )
            with gr.Row():
                self.plots = []
                for title, says, _ in CARDS:
                    with gr.Column(min_width=340):
                        gr.Markdown(f"### {title}\n\n{says}", elem_classes="wb-note")
                        self.plots.append(gr.Plot(show_label=False, container=False, elem_classes="chart"))
            self.paper = gr.Markdown(elem_id="batch-paper", elem_classes="wb-wide")
            self.table = gr.Dataframe(interactive=False, show_label=False, buttons=["copy"], elem_id="batch-figures")
            gr.Markdown(COLUMNS, elem_classes="wb-note")
            self.links = gr.HTML(elem_id="batch-downloads", elem_classes="wb-note")
            with gr.Accordion("Environment: what these figures were measured on", open=False):
                self.environment = gr.HTML(elem_id="batch-environment", elem_classes="wb-note")
        gr.on(
            [self.decoder.input, self.decoding.input],
            self._draw,
            [self.run, self.decoder, self.decoding],
            self.drawn,
            **QUIET,
        )

    @property
    def drawn(self) -> list[Any]:
        """What follows the choice of decoder and time."""
        return [*self.plots, self.paper]

    @property
    def outputs(self) -> list[Any]:
        return [self.run, self.box, self.verdict, self.decoder, *self.drawn, self.table, self.links, self.environment]

    def show(self, run: BatchRun, decoder: str | None, decoding: bool) -> Updates:
        """The run, also one that is still growing; `decoder` and `decoding` are what the visitor looks at."""
        decoder = decoder if decoder in run.decoders else next(iter(run.decoders), None)
        heads, rows = batch_table.table(run)
        return {
            self.run: run,
            self.box: gr.update(visible=True),
            self.verdict: "".join(map(notes.note, batch_table.findings(run))),
            self.decoder: gr.update(choices=[(_label(d), d) for d in run.decoders], value=decoder),
            **dict(zip(self.drawn, self._draw(run, decoder, decoding), strict=True)),
            self.table: {"headers": heads, "data": rows},
            self.links: _links(run),
            self.environment: notes.facts(run),
        }  # fmt: skip

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False)}

    def _draw(self, run: BatchRun | None, decoder: str | None, decoding: bool) -> list[Any]:
        if run is None or decoder is None:
            return [gr.skip()] * len(self.drawn)
        figures = [batch_charts.or_told(draw(run, decoder, decoding)) for _, _, draw in CARDS]
        return [*figures, f"### {_label(decoder)}: {TABLE}\n\n{batch_table.markdown(run, decoder, decoding)}"]


def _label(decoder: str) -> str:
    return decoder.replace("_", " ")


def _links(run: BatchRun) -> str:
    """Downloads that hold their own data, so that nothing is kept on the disk."""
    links = (
        f'<a class="button" download="batch.{kind}" href="data:{TYPES[kind]};base64,{base64.b64encode(write(run).encode()).decode()}">'
        f"{kind.upper()}</a>"
        for kind, write in batch_table.WRITERS.items()
    )
    return f'<div class="kept"><span>Download</span><span>{"".join(links)}</span></div>'
