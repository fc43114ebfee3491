"""What the page shows and how each figure is made, from the same tables that make it."""

import gradio as gr

from decoders import catalog
from workbench.runs.estimates import label
from workbench.show.quantities import QUANTITIES
from workbench.studies.text import cited

INTRODUCTION = """
## What you see

Every panel is the same large model continuing the same prompt, with another **decoder**: a way to choose tokens. Some ask a small
*draft* model to write ahead and let the large *target* model check several tokens in one pass. The colour and the line of a token
say where it came from; point at it, or move with the arrow keys, to see the probabilities that decided. *Replay* walks through the
rounds, each drawn as the tree of tokens that it tried.

Decoders run one after another and are timed alone: seconds are those of the models and the decoder, drawing is not counted.
Speeds depend on the machine: the environment card is part of every run and every export.

**Batch** decodes many prompts at once. Each accepts another number of draft tokens in a round; a framework with aligned tensors pads
their inputs and caches to the longest of the batch (*vanilla*), and computes the pads. The engine here pads neither. The tab measures
what either half of the padding costs; the tokens are the same.
"""


class AboutTab:
    def __init__(self) -> None:
        with gr.Tab("About", id="about", elem_id="about"):
            gr.Markdown(INTRODUCTION)
            gr.Markdown(_table("The figures", ("figure", "what it counts"), [(n.label, n.help) for n in QUANTITIES]))
            rows = [
                (label(name), method.summary, method.law or "its own", cited(method))
                for name, method in catalog.items()
            ]
            gr.Markdown(_table("The decoders", ("decoder", "what it does", "law of its output", "paper"), rows))


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ("---",) * len(heads), *rows)]
    return f"## {title}\n\n" + "\n".join(lines)
