"""The card of the batch tab: what was measured beforehand, from the file that the bench writes."""

import gradio as gr

from workbench.runs.shipped import Measured
from workbench.show import batch as batch_charts
from workbench.show.tables import markdown, spread, verdict
from workbench.studies.batch_records import BatchRun

SAYS = "Tokens/s, the reading of prompts left out (times greedy at the same batch size)."
POINTS = "Each point is a sample: the tokens that a round gains it."


def lay_out(found: Measured) -> None:
    with gr.Accordion("Measured beforehand: what each way costs", open=False, elem_id="batch-card"):
        for run in found.runs:
            with gr.Row():
                with gr.Column(scale=4, min_width=340):
                    gr.Markdown("\n\n".join(_table(run, decoder) for decoder in run.decoders), elem_classes="wb-wide")
                with gr.Column(scale=1, min_width=260):
                    gr.Markdown(f"### Acceptance\n\n{POINTS}", elem_classes="wb-note")
                    gr.Plot(batch_charts.acceptance(run), show_label=False, container=False, elem_classes="chart")
        gr.Markdown(_source(found), elem_classes="wb-note")


def _table(run: BatchRun, decoder: str) -> str:
    title = f"### {decoder.replace('_', ' ')} on {len(run.prompt_tokens)} {run.prompt}, {run.settings['max_new_tokens']} tokens each"
    return "\n\n".join([title, SAYS, markdown(run, decoder, decoding=True), f"{verdict(run)} {spread(run, decoder)}"])


def _source(found: Measured) -> str:
    """When, how and on what it was measured."""
    run, load = found.runs[0], ", ".join(f"{value:.2f}" for value in found.load)
    where = run.environment
    return (
        f"{run.created[:10]} · `{found.command}` · {where['device_name']}, threads: {where['threads']}, CPUs: {where['cpus']} · "
        f"{where['dtype']} · torch {where['torch']} · load before it {load}"
    )
