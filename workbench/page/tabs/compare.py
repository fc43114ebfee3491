"""The first tab: one prompt, the chosen decoders side by side."""

from collections.abc import Mapping
from typing import Any

import gradio as gr

from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.branching import Branching
from workbench.page.parts.form import DEFAULT_DECODERS, SHARED, SettingsForm
from workbench.page.parts.pair_picker import PairPicker
from workbench.page.parts.results import ComparisonResults
from workbench.page.parts.runner import Runner, Wiring
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Faults, NotedForm, Updates, Values
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run
from workbench.runs.recorded import recordings
from workbench.show.live import LivePanels
from workbench.studies import presets
from workbench.studies.comparison import Comparison
from workbench.studies.settings import Settings, shared

CUSTOM = "custom"
DRAWN = tuple(presets.SETTINGS[presets.OPENING])  # the settings that a preset sets
START = {
    "decoders": DEFAULT_DECODERS,
    **presets.SETTINGS[presets.OPENING],
}  # what the page opens with; links keep the defaults


class CompareTab:
    """`show(run)` fills the whole tab with a past run, `fill(study)` only its form; both give updates for `outputs`."""

    id = "compare"

    def __init__(self, host: Host):
        self.host = host
        self.form = SettingsForm(START, host.limits.of_settings)
        self.runner = Runner(host, self.id)
        with gr.Tab("Compare", id=self.id) as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        with gr.Row(elem_id="gallery", elem_classes="chips", visible=bool(recordings())):
            gr.HTML("Recorded runs:", elem_classes="wb-note chips-name")
            self.gallery = [gr.Button(each.title, size="sm", elem_classes="chip") for each in recordings()]
        with gr.Row(elem_id="asking", equal_height=True):
            with gr.Column(scale=5, min_width=420):
                self.prompt = gr.Textbox(
                    next(iter(presets.PROMPTS.values())),
                    label="Prompt",
                    placeholder="Text for the models to continue",
                    lines=1,
                    max_lines=12,
                    elem_id="prompt",
                )
            with gr.Column(scale=5, min_width=560), gr.Row(elem_id="go", equal_height=True):
                self.preset = gr.Dropdown(
                    [(presets.described(name), name) for name in presets.SETTINGS] + [("settings of your own", CUSTOM)],
                    value=presets.OPENING, label="How tokens are drawn", elem_id="preset", scale=3, min_width=430,
                )  # fmt: skip
                self.runner.lay_out_buttons("Run")
        with gr.Row(elem_classes="chips"):
            gr.HTML("Examples:", elem_classes="wb-note chips-name")
            self.examples = [gr.Button(name, size="sm", elem_classes="chip") for name in presets.PROMPTS]
            self.count = gr.HTML(elem_id="token-count", elem_classes="wb-note")
            # Not in the fold: a shut fold is not on the page, and Run puts this link into the address.
            asked = words.settings_link(Comparison.kind, {"prompt": self.prompt.value, "settings": START})
            self.share = gr.HTML(asked, elem_id="settings-link", elem_classes="wb-note")
        with gr.Accordion("Decoders, settings, models", open=False, elem_id="form"):
            self.form.lay_out_decoders()
            with gr.Accordion("Settings", open=False, elem_id="settings"):
                self.form.lay_out_settings()
            with gr.Accordion("Models", open=False, elem_id="models"):
                self.pairs = PairPicker(self.host)
        self.runner.lay_out_progress()
        self.results = ComparisonResults()
        self.noted = NotedForm([self.prompt, *self.form.components])

    @property
    def outputs(self) -> list[Any]:
        return [self.prompt, self.count, self.preset, *self.runner.outputs, *self.form.outputs, *self.results.outputs]

    def _wire(self) -> None:
        inputs: list[Any] = [self.noted.values, self.pairs.choice]
        for button, text in zip(self.examples, presets.PROMPTS.values(), strict=True):
            button.click(lambda text=text: text, None, self.prompt, **self.noted.filling)
        drawn = [self._drawn(name) for name in DRAWN]
        self.preset.input(self._preset, self.preset, [self.preset, *drawn], **self.noted.filling)
        gr.on(
            [each.change for each in inputs],
            self._count,
            inputs,
            [self.count, self.share, self.preset],
            trigger_mode="always_last",
            **QUIET,
        )
        self.pairs.choice.change(self._offer, self.pairs.choice, [*self.form.offered.values()], **self.noted.filling)
        wiring = Wiring(
            self.noted, self.pairs.choice, [], self._study, self.prompt, [], self._follow, self.results.outputs
        )  # fmt: skip
        self.runner.wire(wiring)
        Branching(self.host, self.runner, self.results, self.pairs.choice)

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
        settings = study.get("settings", {})
        return {**prompt, **self.form.filled(settings), self.preset: _preset_of(settings)}

    def greet(self) -> Updates:
        """What a fresh page shows: the length of the prompt it opens with."""
        count = self.host.tokens(self.prompt.value, False, PairChoice())
        return {self.count: words.tokens(count, START), **self._offer(PairChoice())}

    @property
    def unasked(self) -> Updates:
        """What a run that nobody asked for does not show: how it ended, and its id in the address. Its panels have come with the HTML."""
        return {self.runner.progress: "", self.results.kept.run_id: "", self.results.strip: gr.skip()}

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

    def _count(self, noted: list[Any], choice: PairChoice) -> tuple[str, str, str]:
        """What is asked for in a line, a link that fills this form, and the preset that it follows."""
        values = self.noted.read(noted)
        prompt, typed = values[self.prompt], self.form.typed(values)
        count = self.host.tokens(prompt, self.form.value(values, "chat_template"), choice)
        link = words.settings_link(Comparison.kind, {"prompt": prompt, "settings": typed})
        return words.tokens(count, typed), link, _preset_of(typed)

    def _offer(self, choice: PairChoice) -> Updates:
        """The chat template's switch, only if the tokenizer has one; that of penalties, only if the target asks for some."""
        return self.form.offer(self.host.offers(choice))

    def _preset(self, name: str) -> Updates:
        """The preset says how tokens are drawn; decoders and the number of tokens stay as they are."""
        if name not in presets.SETTINGS:
            return {self.preset: gr.skip()}
        return {self._drawn(each): value for each, value in presets.SETTINGS[name].items()}

    def _drawn(self, name: str) -> Any:
        return next(c.component for c in self.form.controls if (c.owner, c.field.name) == (SHARED, name))


def _preset_of(settings: Mapping[str, Any]) -> str:
    """The preset that these settings follow, as a form shows them: what is left out has its default."""
    return presets.named({**{f.name: f.default for f in shared()}, **settings}) or CUSTOM


class _Live:
    """The panels of a comparison while it runs, then its results."""

    def __init__(self, study: Comparison, results: ComparisonResults):
        self._panels, self._results = LivePanels(study), results

    def begin(self) -> Updates:
        return self._results.begin(self._panels)

    def update(self, event: Event) -> Updates:
        if isinstance(event, Ended):
            return self._results.show(event.run, bool(event.unkept)) if event.run.results else {}
        self._panels.update(event)
        return {} if isinstance(event, Finished) else {self._results.strip: self._panels.changes()}
