"""The tab for many draws: one prompt, each decoder with a hundred seeds."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.draw_results import DrawResults
from workbench.page.parts.form import SettingsForm
from workbench.page.parts.runner import Runner, Wiring
from workbench.page.tabs.compare import CompareTab
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Faults, NotedForm, Updates, Values
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run
from workbench.studies import presets
from workbench.studies.draw import DEFAULTS, Draw, bounds

START = {
    **DEFAULTS,
    **presets.SETTINGS[presets.OPENING],
    "decoders": ["multinomial", "speculative", "mtad", "dsbd"],
}
INTRODUCTION = (
    "One text is chance; a hundred show the distribution. Each decoder continues the same prompt with many seeds, with the pair that the "
    "Compare tab has loaded. The texts stand as one tree with counts, and a test says whether their first tokens are drawn as the large "
    "model alone would draw them."
)


class DrawTab:
    """`show(run)` fills the whole tab with a past run, `fill(study)` only its form; both give updates for `outputs`."""

    id = "draw"

    def __init__(self, host: Host, compare: CompareTab):
        self.host = host
        self.pair = compare.pairs.choice
        self.form = SettingsForm(START, host.limits.of_settings, "draw-decoders", bounds())
        self.runner = Runner(host, self.id)
        with gr.Tab("Draws", id=self.id, elem_id="draw") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        with gr.Row(equal_height=True):
            with gr.Column(scale=5, min_width=320):
                self.prompt = gr.Textbox(
                    next(iter(presets.PROMPTS.values())), label="Prompt", placeholder="Text for the models to continue",
                    lines=1, max_lines=12, elem_id="draw-prompt",
                )  # fmt: skip
            with gr.Column(scale=4, min_width=320), gr.Row(equal_height=True):
                self.runner.lay_out_buttons("Draw", "draw-")
        with gr.Row(elem_classes="chips"):
            self.asked = gr.HTML(words.note(_asked(START)), elem_id="draw-asked", elem_classes="wb-note")
            # Not in the fold: a shut fold is not on the page, and the button puts this link into the address.
            self.share = gr.HTML(elem_id="draw-settings-link", elem_classes="wb-note")
        with gr.Accordion("Decoders, settings", open=False, elem_id="draw-form"):
            self.form.lay_out_decoders()
            with gr.Accordion("Settings", open=False, elem_id="draw-settings"):
                self.form.lay_out_settings()
        self.runner.lay_out_progress("draw-")
        self.results = DrawResults()
        self.noted = NotedForm([self.prompt, *self.form.components])

    @property
    def outputs(self) -> list[Any]:
        return [self.prompt, *self.runner.outputs, *self.form.outputs, *self.results.outputs]

    def _wire(self) -> None:
        self.tab.select(self._offer, self.pair, [*self.form.offered.values()], **QUIET)
        asked = [self.share, self.asked]
        self.noted.values.change(self._told, self.noted.values, asked, trigger_mode="always_last", **QUIET)
        self.runner.wire(
            Wiring(self.noted, self.pair, [], self._study, self.prompt, [], self._follow, self.results.outputs)
        )

    # ---- what others may show here

    def show(self, run: Run) -> Updates:
        return {**self.fill(run.study), **self.results.show(run), self.runner.progress: words.outcome(run)}

    def fill(self, study: Mapping[str, Any]) -> Updates:
        """The form showing this study, as `Draw.to_json` has it; what it leaves out has its default."""
        prompt = {self.prompt: study["prompt"]} if "prompt" in study else {}
        return {**prompt, **self.form.filled({**START, **study.get("settings", {})})}

    # ---- handlers

    def _study(self, values: Values) -> Draw:
        faults = self.form.faults(values)
        if not values[self.prompt].strip():
            faults[self.prompt] = "The prompt is empty; write a few words."
        if faults:
            raise Faults(faults)
        return Draw.from_json({"prompt": values[self.prompt], "settings": self.form.typed(values)})

    def _told(self, noted: list[Any]) -> tuple[str, str]:
        """A link that fills this form, and what it asks for."""
        values = self.noted.read(noted)
        typed = self.form.typed(values)
        return words.settings_link(Draw.kind, {"prompt": values[self.prompt], "settings": typed}), words.note(
            _asked(typed)
        )

    def _offer(self, choice: Any) -> Updates:
        """The settings that mean something for this pair alone."""
        return self.form.offer(self.host.offers(choice))

    def _follow(self, study: Draw) -> "_Live":
        return _Live(self.results)


def _asked(settings: Mapping[str, Any]) -> str:
    return f"{settings.get('draws', Draw.draws) or 'no'} draws · {words.chosen(settings)}"


class _Live:
    """The trees while they come: each decoder's as soon as it is done."""

    def __init__(self, results: DrawResults):
        self._results = results

    def begin(self) -> Updates:
        return self._results.clear()

    def update(self, event: Event) -> Updates:
        if isinstance(event, Ended):
            return self._results.show(event.run, bool(event.unkept)) if event.run.results else {}
        return self._results.drawn(event.run) if isinstance(event, Finished) else {}
