"""Two greedy texts, pasted: a fold under Runs, and the endpoint /diverge."""

import gradio as gr

from workbench.kinds.divergence import DTYPES, compared
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.host import Host
from workbench.page.runner import Answer, Jobs, sentence, told
from workbench.page.widgets import DEVICE


def fold(host: Host, pair: gr.State) -> None:
    """Lay out the fold.

    Args:
        host: the page's host
        pair: the visitor's pair; on a shared machine the embedded one counts
    """

    def find(choice: PairChoice, *texts: str | None) -> str:
        choice = host.first if host.limits.public else choice
        try:
            given, most = (text or "" for text in texts), host.limits.max_new_tokens
            answer = host.device.ask(choice, compared, *given, most)
        except Exception as error:
            return words.note(sentence(error), "alert")
        return words.note(answer["says"]) + (words.note(answer["facts"]) if answer["facts"] else "")

    with gr.Accordion(
        "Two greedy texts differ: fault or near-tie?", open=False, elem_id="divergence"
    ):
        prompt = gr.Textbox(
            label="Prompt", elem_id="divergence-prompt",
            info="Text, or token ids as in [5, 9, 3]; the same for both texts.",
        )  # fmt: skip
        with gr.Row():
            first, second = (
                gr.Textbox(
                    label=f"{name} text", lines=4, elem_id=f"divergence-{name.lower()}",
                    info="What follows the prompt, as text or token ids.", min_width=280,
                )
                for name in ("First", "Second")
            )  # fmt: skip
        with gr.Row():
            dtype = gr.Dropdown(
                list(DTYPES), value="auto", label="Number type of the texts",
                elem_id="divergence-dtype", min_width=200,
                info="The coarser one, if they differ; auto: the model’s.",
            )  # fmt: skip
            button = gr.Button("Find the verdict", elem_id="diverge", min_width=160)
        verdict = gr.HTML(elem_id="divergence-verdict", elem_classes="wb-note")
    button.click(
        find, [pair, prompt, first, second, dtype], verdict,
        show_progress_on=verdict, **DEVICE,
    )  # fmt: skip


def endpoints(host: Host) -> Jobs:
    def diverge(prompt: str, first: str, second: str, dtype: str = "auto") -> Answer:
        """Say where two greedy texts of the large model part: at a near-tie or at a fault.

        The candidates' logits are compared in float32 and float64 with the rounding of its passes.

        Args:
            prompt: the prompt, as text or as a list of token ids or messages in JSON
            first: the text after it, as text or as token ids
            second: the other text
            dtype: the number type in which they were made, such as "bfloat16"

        Returns:
            verdict, says, place, tokens, gap_float32, gap_float64, behind, bound, at_fault
        """
        with told():
            texts, most = (prompt, first, second), host.limits.max_new_tokens
            return host.device.ask(host.first, compared, *texts, dtype, most)

    return (diverge,)
