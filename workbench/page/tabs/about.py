"""The tab that explains the page, its figures and decoders, from the tables that define them."""

from collections.abc import Sequence

import gradio as gr

from decoders import catalog
from workbench.runs.estimates import label
from workbench.show.laws import claim
from workbench.show.quantities import QUANTITIES
from workbench.studies.text import cited

INTRODUCTION = """
## What you see

In every panel the same large model continues the same prompt, each time with another **decoder**, a
rule for choosing tokens. Some decoders let a small *draft* model write a few tokens, which the
large *target* model then tests in one pass. The colour and the underline of a token show where it
came from; point at it, or move with the arrow keys, to see the probabilities that decided. *Step
through its rounds* draws each round as the tree of tokens that were tried.

Decoders run one after another, so that each is timed alone. The seconds are those of the models and
the decoder, without drawing. Speeds depend on the machine, so every run and every export names the
machine that it was measured on.

**Draws** continues one prompt with a hundred seeds and compares the draws with the large model's
probabilities. **Experiments** runs plans over many prompts. **Runs** keeps all measurements;
**Theory** has the papers' formulas with sliders.

**Batch** decodes many prompts at once. In each round, every prompt accepts a different number of
draft tokens. A framework with aligned tensors pads inputs and caches to the longest of the batch,
and computes the padding, too; the engine here pads neither. The tab measures the cost of each half
of the padding; the tokens are the same.
"""


class AboutTab:
    def __init__(self) -> None:
        with gr.Tab("About", id="about", elem_id="about"):
            gr.Markdown(INTRODUCTION)
            gr.Markdown(
                _table(
                    "The figures",
                    ("figure", "what it counts"),
                    [(n.label, n.help) for n in QUANTITIES],
                )
            )
            rows = [
                (_spelled_out(name), method.summary, claim(method(), 1.0).chip, cited(method))
                for name, method in catalog.items()
            ]
            gr.Markdown(
                _table("The decoders", ("decoder", "what it does", "its text", "paper"), rows)
            )


def _spelled_out(name: str) -> str:
    """A decoder's name, and the words that it abbreviates."""
    words = catalog[name].stands_for
    return f"{label(name)} ({words})" if words else label(name)


def _table(title: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ("---",) * len(heads), *rows)]
    return f"## {title}\n\n" + "\n".join(lines)
