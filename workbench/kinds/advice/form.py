"""The card "Will speculative decoding pay here?", which advises on the pair that is loaded."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field
from typing import Any, ClassVar

import gradio as gr

from decoders import InputError
from decoders.settings import check
from workbench.kinds.advice.study import MOST_PROMPTS, Advice, read_loads
from workbench.kinds.advice.view import answer
from workbench.models.presets import PairChoice
from workbench.page.parts.frame import StudyTab
from workbench.page.parts.results import Figures
from workbench.page.widgets.handlers import Updates, Values
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.studies.text import counted, parse, written

SAYS = (
    "Predicts from acceptance and costs whether speculative decoding pays with this pair on this "
    "machine, shows measurements beside the prediction, and says at which load it stops paying."
)
LABELS = {
    "loads": "Requests at once",
    "gpu_bandwidth": "GPU: bandwidth",
    "gpu_tflops": "GPU: operations",
}
START = {**Advice.usual, "max_new_tokens": 48}
OPENING = {"prompts": {"name": "stories", "count": 5}, "settings": {**START, "temperature": 1.0}}


class Answer(Figures):
    def growing(self, run: Run, *looked_at: Any) -> Updates:
        return {**super().growing(run), self.table: answer(run), self.timing: ""}

    def update(self, event: Started | Progress | Finished) -> Updates:
        return {}  # while most decoders are not measured, figures would mislead


class AdviceCard(StudyTab):
    """A card in another tab, with the settings that matter most."""

    study: ClassVar[type[Advice]] = Advice
    id, title, prefix = "experiments", "Will speculative decoding pay here?", "advice-"
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
            self.lay_out_buttons()
        with gr.Accordion("Load, and a GPU", open=False, elem_id="advice-more"), gr.Row():
            self.own = {field.name: _input(field) for field in Advice.own()}
        with gr.Row(elem_classes="chips"):
            self.lay_out_asked()
        self.runner.lay_out_progress()
        self.results = Answer(self.prefix)

    @property
    def refreshing(self) -> list[Any]:
        return []

    @property
    def inputs(self) -> list[Any]:
        return [self.count, self.temperature, *self.own.values()]

    def fill(self, data: Mapping[str, Any]) -> Updates:
        settings = data.get("settings", {})
        return {
            self.temperature: settings.get("temperature", 1.0),
            self.count: data.get("prompts", {}).get("count", 5),
            **{self.own[f.name]: written(f, settings.get(f.name, f.default)) for f in Advice.own()},
        }

    def typed(self, values: Values) -> dict[str, Any]:
        own = {f.name: parse(f, values[self.own[f.name]]) for f in Advice.own()}
        with suppress(InputError):  # the study says what is wrong with it
            own["loads"] = read_loads("advice", own["loads"])
        settings = {**START, "temperature": float(values[self.temperature] or 0), **own}
        prompts = {"name": "stories", "count": values[self.count]}
        return {"prompts": prompts, "settings": settings}

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        count, settings = int(data["prompts"]["count"] or 0), data["settings"]
        return f"{counted(count, 'story', 'stories')}, {settings['max_new_tokens']} new tokens each"

    def faults(self, values: Values, *more: Any) -> dict[Any, str]:
        needed = (self.count, self.temperature)
        found: dict[Any, str] = {}
        found |= {each: f"{each.label} is empty." for each in needed if values[each] is None}
        for field in Advice.own():
            try:
                check("advice", field, parse(field, values[self.own[field.name]]))
            except InputError as error:
                found[self.own[field.name]] = found[self.count] = str(error)  # the fold may be shut
        return found


def _input(field: Field) -> gr.Textbox:
    """The input of one of advice's own settings."""
    # Of a number that is left empty, Gradio makes 0.
    return gr.Textbox(
        written(field, field.default),
        label=LABELS[field.name],
        info=field.metadata["help"],
        min_width=180,
        max_lines=1,
        elem_id=f"advice-{field.name.replace('_', '-')}",
    )
