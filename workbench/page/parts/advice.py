"""The card "Will speculative decoding pay here?": what speculative decoding would gain with the pair that is loaded, predicted and measured."""

from collections.abc import Iterator
from contextlib import closing

import gradio as gr

from decoders import InputError
from workbench.experiments import advice
from workbench.experiments.advisor import MOST_PROMPTS, Advice, advise
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import DEVICE
from workbench.show import tables
from workbench.studies import prompts
from workbench.studies.settings import Settings

SAYS = "Whether speculative decoding pays with this pair on this machine: predicted from acceptance and costs, beside what is measured."
NEW_TOKENS = 48


class AdviceCard:
    def __init__(self, host: Host, pair: gr.State):
        self.host = host
        with gr.Accordion("Will speculative decoding pay here?", open=False, elem_id="experiment-advice"):
            gr.Markdown(SAYS, elem_classes="wb-note")
            with gr.Row():
                self.temperature = gr.Number(
                    1.0, label="Temperature", minimum=0, maximum=100, min_width=140, elem_id="advice-temperature"
                )
                self.count = gr.Number(
                    5, label="Prompts", precision=0, minimum=1, maximum=MOST_PROMPTS, min_width=140, elem_id="advice-count"
                )  # fmt: skip
                self.ask = gr.Button("Ask", elem_id="advice-ask", min_width=140)
            self.answer = gr.HTML(elem_id="advice-answer", elem_classes="wb-note")
        asked = [self.temperature, self.count, pair]
        self.ask.click(self._advise, asked, self.answer, show_progress_on=self.answer, **DEVICE)

    def _advise(self, temperature: float | None, count: float | None, pair: PairChoice) -> Iterator[str]:
        try:
            asked = {"decoders": ["greedy"], "temperature": float(temperature or 0), "max_new_tokens": NEW_TOKENS}
            settings, device = Settings.from_json(asked), self.host.device
            texts = [p.text for p in prompts.built_in("stories").first(min(int(count or 1), MOST_PROMPTS)).prompts]
            models = device.pair(pair)
            with device.turn, closing(device.iterate(lambda: advise(models, texts, settings))) as happening:
                for found in happening:
                    yield _answer(found) if isinstance(found, Advice) else words.note(found)
        except InputError as error:
            yield words.note(str(error), "alert")


def _answer(found: Advice) -> str:
    return words.note(advice.verdict(found)) + tables.markup(advice.lines(found))
