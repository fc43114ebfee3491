"""The card of the batch tab: what was measured beforehand, from the file that ships with the project."""

import gradio as gr

from workbench.runs.estimates import BatchFigures, label
from workbench.runs.record import Run
from workbench.runs.shipped import Measured
from workbench.show import batch
from workbench.show.tables import acceptance, markdown, paper_table, verdict

SAYS = "Tokens/s, the reading of prompts left out (times greedy in the same kind of batch)."
POINTS = "Each point is a sample: the tokens that it gains per round."


def lay_out(found: Measured) -> None:
    with gr.Accordion("Measured beforehand: what each scheme costs", open=False, elem_id="batch-card"):
        for run in found.runs:
            figures = BatchFigures(run)
            tables = "\n\n".join(_table(run, figures, decoder) for decoder in figures.decoders)
            with gr.Row():
                with gr.Column(scale=4, min_width=340):
                    gr.Markdown(tables, elem_classes="wb-wide")
                with gr.Column(scale=1, min_width=260):
                    gr.Markdown(f"### Acceptance\n\n{POINTS}", elem_classes="wb-note")
                    gr.Plot(batch.acceptance(figures), show_label=False, container=False, elem_classes="chart")
        gr.Markdown(_source(found), elem_classes="wb-note")


def _table(run: Run, figures: BatchFigures, decoder: str) -> str:
    title = f"### {label(decoder)} on {run.title}, {run.settings['max_new_tokens']} tokens each"
    found = f"{verdict(run)} {acceptance(figures, decoder)}"
    return "\n\n".join([title, SAYS, markdown(paper_table(figures, decoder, decoding=True)), found])


def _source(found: Measured) -> str:
    """When, how and on what it was measured."""
    run, load = found.runs[0], ", ".join(f"{value:.2f}" for value in found.load)
    where = run.environment
    return (
        f"{run.created[:10]} · `{found.command}` · {where['device_name']}, threads: {where['threads']}, CPUs: {where['cpus']} · "
        f"{where['dtype']} · torch {where['torch']} · load before it {load}"
    )
