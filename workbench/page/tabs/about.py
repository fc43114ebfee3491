"""The tab that explains the page, its figures and decoders, from the tables that define them."""

import gradio as gr

from decoders import catalog, smollm2
from workbench.runs.figures import label
from workbench.show import laws, quantities
from workbench.studies.text import cited

INTRODUCTION = """
## What you see

Every text is the same large model's continuation of the same prompt, each time with another
**decoder**, a rule for choosing tokens. Some decoders let a small *draft* model write a few tokens,
which the large *target* model then tests in one pass. The colour and the underline of a token show
where it came from; click it to see the probabilities that decided. In the picture, **Play** goes
through the rounds, and below the text one round is shown up close, with its guesses or the tree of
tokens that were tried.

Decoders run one after another, so that each is timed alone. The seconds are those of the models and
the decoder, without drawing. Speeds depend on the machine, so every run and every export names the
machine that it was measured on.

**Draws** continues one prompt with a hundred seeds and compares the draws with the large model's
probabilities. **Experiments** runs plans over many prompts. **Runs** keeps all measurements;
**Theory** has the papers' formulas with sliders.

**Batch** decodes many prompts at once. In each round, every prompt accepts a different number of
draft tokens. A framework with aligned tensors pads inputs and caches to the longest of the batch,
and computes the padding, too; the engine here pads neither. This tab measures what padding costs,
for inputs and caches separately. The text does not change.
"""
LICENCES = (
    "## Licences\n\nSmolLM2-135M-Instruct is under "
    f"[Apache 2.0](https://huggingface.co/{smollm2.HUB}); its head, and the embedded story models, "
    "are under the Llama 3.1 Community License."
)


class AboutTab:
    def __init__(self) -> None:
        with gr.Tab("About", id="about", elem_id="about"):
            gr.Markdown(INTRODUCTION)
            figures = [(quantity.label, quantity.help) for quantity in quantities.QUANTITIES]
            decoders = [
                (
                    label(name) + (f" ({method.stands_for})" if method.stands_for else ""),
                    method.summary, laws.claim(method(), 1.0).chip, cited(method),
                )
                for name, method in catalog.items()
            ]  # fmt: skip
            for title, heads, rows in (
                ("The figures", ("figure", "what it counts"), figures),
                ("The decoders", ("decoder", "what it does", "its text", "paper"), decoders),
            ):
                lines = [" | ".join(row) for row in (heads, ("---",) * len(heads), *rows)]
                gr.Markdown(f"## {title}\n\n" + "\n".join(f"| {line} |" for line in lines))
            gr.Markdown(LICENCES)
