"""The card "Does speculative decoding pay here?", which advises on the pair that is loaded."""

from collections.abc import Mapping
from typing import Any, ClassVar

import gradio as gr

from workbench.kinds.advice import MOST_PROMPTS, Advice, answer
from workbench.models.presets import PairChoice
from workbench.page.frame import Figures, StudyTab
from workbench.page.widgets import Updates, Values
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.studies.settings import counted

SAYS = (
    "Predicts from acceptance and costs whether speculative decoding pays with this pair on this "
    "machine, and shows measurements beside the prediction."
)
START = {**Advice.usual, "max_new_tokens": 48}
OPENING = {"prompts": {"name": "stories", "count": 5}, "settings": {**START, "temperature": 1.0}}


class AdviceFigures(Figures):
    def growing(self, run: Run, *looked_at: Any) -> Updates:
        return {**super().growing(run), self.table: answer(run), self.timing: ""}

    def update(self, event: Started | Progress | Finished) -> Updates:
        return {}  # while most decoders are not measured, figures would mislead


class AdviceCard(StudyTab):
    """A card in another tab, with the settings that matter most."""

    study: ClassVar[type[Advice]] = Advice
    id, title, prefix = "experiments", "Does speculative decoding pay here?", "advice-"
    runs_by_link = False
    opening: ClassVar[Mapping[str, Any]] = OPENING
    linked: ClassVar[Mapping[str, Any]] = OPENING
    shown: ClassVar[Mapping[str, Any]] = OPENING["settings"]

    def frame(self) -> gr.Accordion:
        return gr.Accordion(self.title, open=False, elem_id="experiment-advice")

    def lay_out(self) -> None:
        gr.Markdown(SAYS, elem_classes="wb-note")
        with gr.Row():
            self.temperature = gr.Number(
                1.0, label="Temperature", minimum=0, maximum=100, min_width=140,
                elem_id="advice-temperature",
            )  # fmt: skip
            self.count = gr.Number(
                5, label="Prompts", precision=0, minimum=1, maximum=MOST_PROMPTS, min_width=140,
                elem_id="advice-count",
            )  # fmt: skip
            self.runner.lay_out_buttons(self.study.verb)
        with gr.Row(elem_classes="chips"):
            self.lay_out_asked()
        self.runner.lay_out_progress()
        self.runner.lay_out_again()
        self.results = AdviceFigures(self.prefix)

    @property
    def inputs(self) -> list[Any]:
        return [self.count, self.temperature]

    def fill(self, data: Mapping[str, Any]) -> Updates:
        settings = data.get("settings", {})
        return {
            self.temperature: settings.get("temperature", 1.0),
            self.count: data.get("prompts", {}).get("count", 5),
        }

    def typed(self, values: Values) -> dict[str, Any]:
        settings = {**START, "temperature": float(values[self.temperature] or 0)}
        prompts = {"name": "stories", "count": values[self.count]}
        return {"prompts": prompts, "settings": settings}

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        count, settings = int(data["prompts"]["count"] or 0), data["settings"]
        return f"{counted(count, 'story', 'stories')}, {settings['max_new_tokens']} new tokens each"

    def faults(self, values: Values, *more: Any) -> dict[Any, str]:
        needed = (self.count, self.temperature)
        return {each: f"{each.label} is empty." for each in needed if values[each] is None}
