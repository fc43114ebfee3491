"""The first tab: one prompt, the chosen decoders side by side."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.form import SettingsForm
from workbench.page.parts.pair_picker import PairPicker
from workbench.page.parts.results import ComparisonResults
from workbench.page.parts.runner import Runner, Wiring
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Faults, NotedForm, Updates, Values
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run
from workbench.show.strip import LivePanels
from workbench.studies import presets
from workbench.studies.comparison import Comparison
from workbench.studies.settings import Settings

CUSTOM = "custom"


class CompareTab:
    """`show(run)` fills the whole tab with a past run, `fill(study)` only its form; both give updates for `outputs`."""

    id = "compare"

    def __init__(self, host: Host):
        self.host = host
        self.form = SettingsForm()
        self.runner = Runner(host, self.id)
        with gr.Tab("Compare", id=self.id) as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        with gr.Row():
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    next(iter(presets.PROMPTS.values())),
                    label="Prompt",
                    placeholder="Text for the models to continue",
                    lines=4,
                    max_lines=16,
                    elem_id="prompt",
                )
                with gr.Row(elem_classes="chips"):
                    self.count = gr.HTML(elem_id="token-count", elem_classes="wb-note")
                    self.examples = [gr.Button(name, size="sm", elem_classes="chip") for name in presets.PROMPTS]
                with gr.Row(equal_height=True):
                    self.preset = gr.Dropdown(
                        [CUSTOM, *presets.SETTINGS], value=CUSTOM, label="Preset", elem_id="preset"
                    )
                    self.runner.lay_out_buttons("Run")
            with gr.Column(scale=2, min_width=320):
                self.form.lay_out_decoders()
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            self.form.lay_out_settings()
            self.share = gr.HTML(elem_id="settings-link", elem_classes="wb-note")
        with gr.Accordion("Models", open=False, elem_id="models"):
            self.pairs = PairPicker(self.host)
        self.runner.lay_out_progress()
        self.results = ComparisonResults()
        self.noted = NotedForm([self.prompt, *self.form.components])

    @property
    def outputs(self) -> list[Any]:
        return [self.prompt, self.count, *self.runner.outputs, *self.form.outputs, *self.results.outputs]

    def _wire(self) -> None:
        inputs = [self.noted.values, self.pairs.choice]
        for button, text in zip(self.examples, presets.PROMPTS.values(), strict=True):
            button.click(lambda text=text: text, None, self.prompt, **self.noted.filling)
        self.preset.input(self._preset, self.preset, [self.preset, *self.form.outputs], **self.noted.filling)
        gr.on(
            [each.change for each in inputs],
            self._count,
            inputs,
            [self.count, self.share],
            trigger_mode="always_last",
            **QUIET,
        )
        self.pairs.choice.change(self._offer_template, self.pairs.choice, self.form.chat_template, **self.noted.filling)
        wiring = Wiring(
            self.noted, self.pairs.choice, [], self._study, self.prompt, [], self._follow, self.results.outputs
        )  # fmt: skip
        self.runner.wire(wiring)

    # ---- what others may show here

    def show(self, run: Run) -> Updates:
        return {
            **self.fill(run.study),
            **self.results.show(run),
            self.runner.progress: words.outcome(run),
        }

    def fill(self, study: Mapping[str, Any]) -> Updates:
        """The form showing this study, as `Comparison.to_json` has it; what it leaves out has its default."""
        prompt = {self.prompt: study["prompt"]} if "prompt" in study else {}
        return {**prompt, **self.form.filled(study.get("settings", {}))}

    def greet(self) -> Updates:
        """What a fresh page shows: the length of the prompt it opens with."""
        count = self.host.tokens(self.prompt.value, False, PairChoice())
        return {self.count: words.tokens(count, Settings.max_new_tokens), **self._offer_template(PairChoice())}

    # ---- handlers

    def _study(self, values: Values) -> Comparison:
        faults = self.form.faults(values)
        if not values[self.prompt].strip():
            faults[self.prompt] = "The prompt is empty; write a few words, or take an example."
        if faults:
            raise Faults(faults)
        return Comparison(values[self.prompt], Settings.from_json(self.form.typed(values)))

    def _follow(self, study: Comparison) -> "_Live":
        return _Live(study, self.results)

    def _count(self, noted: list[Any], choice: PairChoice) -> tuple[str, str]:
        """The prompt's tokens against the limit, and a link that fills this form."""
        values = self.noted.read(noted)
        prompt = values[self.prompt]
        count = self.host.tokens(prompt, self.form.value(values, "chat_template"), choice)
        link = words.settings_link(Comparison.kind, {"prompt": prompt, "settings": self.form.typed(values)})
        return words.tokens(count, self.form.value(values, "max_new_tokens")), link

    def _offer_template(self, choice: PairChoice) -> Updates:
        """The chat template's switch, only if the tokenizer has one."""
        return {self.form.chat_template: gr.update(visible=self.host.has_chat_template(choice))}

    def _preset(self, name: str) -> Updates:
        return {self.preset: gr.skip()} if name == CUSTOM else self.form.filled(presets.SETTINGS[name].to_json())


class _Live:
    """The panels of a comparison while it runs, then its results."""

    def __init__(self, study: Comparison, results: ComparisonResults):
        self._panels, self._results = LivePanels(study), results

    def begin(self) -> Updates:
        return self._results.clear()

    def update(self, event: Event) -> Updates:
        if isinstance(event, Ended):
            return self._results.show(event.run, bool(event.unkept)) if event.run.results else {}
        self._panels.update(event)
        return {} if isinstance(event, Finished) else {self._results.strip: self._panels.value()}
