"""What the page shows and how each figure is made, from the same tables that make it."""

from collections.abc import Sequence

import gradio as gr

from decoders import catalog
from workbench.runs.estimates import label
from workbench.show.laws import claim
from workbench.show.quantities import QUANTITIES
from workbench.studies.text import cited

INTRODUCTION = """
## What you see

In every panel the same large model continues the same prompt, each time with another **decoder**: a rule for choosing tokens. Some
let a small *draft* model write a few tokens, which the large *target* model then tests in one pass. The colour and the underline of
a token show where it came from; point at it, or move with the arrow keys, to see the probabilities that decided. *Step through its
rounds* draws each round as the tree of tokens that were tried.

Decoders run one after another, so that each is timed alone: the seconds are those of the models and the decoder, without drawing.
Speeds depend on the machine, so every run and every export lists what it was measured on.

**Draws** continues one prompt with a hundred seeds and compares what was drawn with the probabilities that the large model gives. **Experiments**
runs plans over many prompts. **Runs** keeps everything that was measured; **Theory** has the papers' formulas with sliders.

**Batch** decodes many prompts at once. In each round every prompt accepts a different number of draft tokens. A framework with
aligned tensors pads inputs and caches to the longest of the batch and computes the padding too; the engine here pads neither.
The tab measures what each half of the padding costs; the tokens are the same.
"""


class AboutTab:
    def __init__(self) -> None:
        with gr.Tab("About", id="about", elem_id="about"):
            gr.Markdown(INTRODUCTION)
            gr.Markdown(_table("The figures", ("figure", "what it counts"), [(n.label, n.help) for n in QUANTITIES]))
            rows = [
                (_spelled_out(name), method.summary, claim(method(), 1.0).chip, cited(method))
                for name, method in catalog.items()
            ]
            gr.Markdown(_table("The decoders", ("decoder", "what it does", "its text", "paper"), rows))


def _spelled_out(name: str) -> str:
    """A decoder's name, and what it stands for."""
    words = catalog[name].stands_for
    return f"{label(name)} ({words})" if words else label(name)


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ("---",) * len(heads), *rows)]
    return f"## {title}\n\n" + "\n".join(lines)
