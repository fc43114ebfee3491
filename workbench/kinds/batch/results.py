"""A batch study on the page: findings in sentences, charts, two tables and links to the run.

Below them stands a card with runs that were measured beforehand.
"""

import time
from typing import Any

import gradio as gr

from workbench.kinds.batch.findings import acceptance, findings, paper_table, verdict
from workbench.page.parts import words
from workbench.page.parts.kept import Kept
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Updates
from workbench.runs.estimates import BatchFigures, label
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.runs.shipped import Measured
from workbench.show import batch, tables
from workbench.show.tables import markdown

# Between two drawings of a study that grows: one takes a browser a quarter of a second, on cores
# that decode.
DRAWN_SECONDS = 2.0
TABLE = "tokens/s (times greedy in the same kind of batch)"
SAYS = "Tokens/s without the reading of prompts (times greedy in the same kind of batch)."
POINTS = "Each point is a sample: the tokens that it gains per round."
COLUMNS = (
    "*decoding*: tokens/s without each batch's first round, which reads the prompts · *at once*: "
    "the most requests in flight, fewer than the batch size if a memory budget makes some wait · "
    "*cache*: the most that a single request held for one model · *same*: whether the output "
    "equals that of the first scheme measured"
)


class BatchResults:
    """The findings, charts and tables of a run; charts follow the chosen decoder and time.

    `show(run)` gives updates for `outputs`.
    """

    def __init__(self) -> None:
        self.run = gr.State()
        with gr.Column(visible=False) as self.box:
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
                    self.plots = []
                    for title, says, _ in batch.CARDS:
                        with gr.Column(min_width=340):
                            gr.Markdown(f"### {title}\n\n{says}", elem_classes="wb-note")
                            self.plots.append(
                                gr.Plot(show_label=False, container=False, elem_classes="chart")
                            )
                self.paper = gr.Markdown(elem_id="batch-paper", elem_classes="wb-wide")
            self.table = gr.HTML(elem_id="batch-figures", elem_classes="wb-note")
            gr.Markdown(COLUMNS, elem_classes="wb-note")
        self.kept = Kept("batch-")
        chosen = [self.run, self.decoder, self.decoding]
        gr.on([self.decoder.input, self.decoding.input], self._draw, chosen, self.drawn, **QUIET)

    @property
    def drawn(self) -> list[Any]:
        """The parts that follow the choice of decoder and time."""
        return [*self.plots, self.paper]

    @property
    def outputs(self) -> list[Any]:
        shown = [self.verdict, self.charts, self.decoder, *self.drawn, self.table]
        return [self.run, self.box, *shown, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        if not run.results:
            return {}
        return {**self.growing(run, *looked_at), **self.kept.show(run, unkept)}

    def growing(self, run: Run, decoder: str | None = None, decoding: bool = False) -> Updates:
        """Updates that show a run, which may still be growing.

        Args:
            run: the run
            decoder: the decoder that the visitor looks at
            decoding: whether the visitor leaves out the reading of prompts
        """
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
        table = tables.markdown(paper_table(figures, decoder, decoding))
        return [*drawn, f"### {label(decoder)}: {TABLE}\n\n{table}"]


class Live:
    """The figures of a batch study while it grows.

    Args:
        results: the part of the page that shows them
        decoder: see `BatchResults.growing`, as for `decoding`
    """

    def __init__(self, results: BatchResults, decoder: str | None, decoding: bool):
        self._results, self._looked_at = results, (decoder, decoding)
        self._drawn = 0.0

    def begin(self) -> Updates:
        return self._results.clear()

    def update(self, event: Started | Progress | Finished) -> Updates:
        if not isinstance(event, Finished) or time.monotonic() < self._drawn + DRAWN_SECONDS:
            return {}
        self._drawn = time.monotonic()
        return self._results.growing(event.run, *self._looked_at)


def lay_out_card(found: Measured) -> None:
    with gr.Accordion(
        "Measured beforehand: the cost of each scheme", open=False, elem_id="batch-card"
    ):
        for run in found.runs:
            figures = BatchFigures(run)
            tables = "\n\n".join(_table(run, figures, decoder) for decoder in figures.decoders)
            with gr.Row():
                with gr.Column(scale=4, min_width=340):
                    gr.Markdown(tables, elem_classes="wb-wide")
                with gr.Column(scale=1, min_width=260):
                    gr.Markdown(f"### Acceptance\n\n{POINTS}", elem_classes="wb-note")
                    gr.Plot(
                        batch.acceptance(figures),
                        show_label=False,
                        container=False,
                        elem_classes="chart",
                    )
        gr.Markdown(_source(found), elem_classes="wb-note")


def _table(run: Run, figures: BatchFigures, decoder: str) -> str:
    title = f"### {label(decoder)} on {run.title}, {run.settings['max_new_tokens']} tokens each"
    says = f"{verdict(run)} {acceptance(figures, decoder)}"
    return "\n\n".join([title, SAYS, markdown(paper_table(figures, decoder, decoding=True)), says])


def _source(found: Measured) -> str:
    """The date, the command and the machine of the measurement."""
    run, load = found.runs[0], ", ".join(f"{value:.2f}" for value in found.load)
    where = run.environment
    return (
        f"{run.created[:10]} · `{found.command}` · {where['device_name']}, "
        f"threads: {where['threads']}, CPUs: {where['cpus']} · {where['dtype']} · "
        f"torch {where['torch']} · load before it {load}"
    )
