"""What other rules would keep of a round's draft: the fold of a round, and the endpoint /judge."""

from typing import Any

import gradio as gr

from decoders import InputError
from workbench.kinds.comparison.results import ComparisonResults
from workbench.kinds.judge import RoundPlace, of_round, of_text
from workbench.models.presets import PairChoice
from workbench.page.api import Jobs, told
from workbench.page.host import Host
from workbench.page.runner import sentence
from workbench.page.widgets import DEVICE, sent


class Judging:
    """Answers the picture's questions about a round."""

    def __init__(self, host: Host, results: ComparisonResults, choice: gr.State):
        self.host = host
        results.strip.expand(
            self._judge, choice, results.alternatives, show_progress="hidden", **DEVICE
        )

    def _judge(self, choice: PairChoice, event: gr.EventData) -> dict[str, Any]:
        question = sent(event, "ask", "run", "decoder", "round")
        answer = {"ask": question.get("ask")}
        try:
            if not all(isinstance(question.get(name), str) for name in ("run", "decoder")):
                raise InputError("Name a round by its run, its decoder and its number.")
            where = RoundPlace(question["decoder"], question.get("round", 0))
            run = self.host.store.get(question["run"])
            return {**answer, **self.host.device.ask(choice, of_round, run, where)}
        except Exception as error:
            return {**answer, "error": sentence(error)}


def endpoints(host: Host) -> Jobs:
    def judge(
        prompt: str,
        draft: str,
        rules: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Judge one draft by many verification rules, with the same random numbers for all.

        The rules are those that the decoders run. By default all that fit a chain are asked.

        Args:
            prompt: the text before the draft, or a list of token ids or messages in JSON
            draft: the draft, as text or as token ids; its q is that of the small model
            rules: names, such as ["match", "block", "typical(epsilon=0.2)"]
            settings: temperature, top_k, top_p, min_p, top_n_sigma, temperature_last and seed

        Returns:
            tokens: the draft's tokens
            and rows: rules, title, law, kept, mean (over all random numbers), chances, why
        """
        with told():
            return host.device.ask(host.first, of_text, prompt, draft, rules or (), settings)

    return (judge,)
