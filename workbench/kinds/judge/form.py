"""What other rules would keep of a round's draft: the fold of a round, and the endpoint /judge."""

from typing import Any

import gradio as gr

from decoders import InputError
from workbench.kinds.comparison.results import ComparisonResults
from workbench.kinds.judge import of_round, of_text
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.runner import Answer, Jobs, sentence, told
from workbench.page.widgets import DEVICE, sent


def answer_judging(host: Host, results: ComparisonResults, pair: gr.State) -> None:
    """Answer the picture's questions about a round."""

    def judge_round(choice: PairChoice, event: gr.EventData) -> dict[str, Any]:
        question = sent(event, "ask", "run", "decoder", "round")
        answer = {"ask": question.get("ask")}
        try:
            if not all(isinstance(question.get(name), str) for name in ("run", "decoder")):
                raise InputError("Name a round by its run, its decoder and its number.")
            place = question["decoder"], question.get("round", 0)
            run = host.store.get(question["run"])
            return {**answer, **host.device.ask(choice, of_round, run, *place)}
        except Exception as error:
            return {**answer, "error": sentence(error)}

    results.strip.expand(judge_round, pair, results.answer, show_progress="hidden", **DEVICE)


def endpoints(host: Host) -> Jobs:
    def judge(
        prompt: str,
        draft: str,
        rules: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Answer:
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
