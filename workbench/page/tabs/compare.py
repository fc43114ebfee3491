"""The first tab: one prompt, the chosen decoders side by side."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.measuring.session import Ended, Finished
from workbench.models.memory import default_device
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words as notes
from workbench.page.parts.form import SettingsForm, Values
from workbench.page.parts.pair_picker import PairPicker
from workbench.page.parts.results import ResultView, Updates
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.page.widgets.messages import NotedForm
from workbench.runs.store import Run
from workbench.show.live import LivePanels
from workbench.studies import presets
from workbench.studies.settings import Settings

CUSTOM = "custom"
DRAWING_SECONDS = (
    0.05  # which the next round leaves to a browser on the cores that decode, while the clock stands still
)
HERE = ("127.0.0.1", "::1")
# The address names the run on screen, so that a reload or a copied address brings it back.
SET_ADDRESS = "(id) => { if (id) history.replaceState(null, '', '?run=' + id + (new URLSearchParams(location.search).get('__theme') ? '&__theme=' + new URLSearchParams(location.search).get('__theme') : '')); }"


class CompareTab:
    """`show(run)` fills the whole tab with a past run, `fill(settings)` only its form; both give updates for `outputs`."""

    def __init__(self, host: Host):
        self.host = host
        self.form = SettingsForm()
        with gr.Tab("Compare", id="compare") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        with gr.Row():
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    next(iter(presets.PROMPTS.values())),
                    label="Prompt",
                    placeholder="A text for the models to go on with",
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
                    self.run = gr.Button("Run", variant="primary", size="lg", elem_id="run")
                    self.stop = gr.Button("Stop", variant="stop", size="lg", visible=False, elem_id="stop")
                    self.leave = gr.Button("Leave the queue", size="lg", visible=False, elem_id="leave")
            with gr.Column(scale=2, min_width=320):
                self.form.lay_out_decoders()
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            self.form.lay_out_settings()
            self.share = gr.HTML(elem_id="settings-link", elem_classes="wb-note")
        with gr.Accordion("Models", open=False, elem_id="models"):
            self.pairs = PairPicker(self.host)
        self.progress = gr.HTML(elem_id="progress", elem_classes="wb-note")
        self.results = ResultView()
        self.noted = NotedForm([self.prompt, *self.form.components])

    @property
    def buttons(self) -> list[Any]:
        return [self.run, self.stop, self.leave]

    @property
    def outputs(self) -> list[Any]:
        return [self.prompt, self.count, self.progress, *self.buttons, *self.form.outputs, *self.results.outputs]

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
        queued = self.run.click(self._queued, inputs, [self.progress, *self.buttons, self.noted.faults], **QUIET)
        self.noted.tell(queued)
        started = self.run.click(
            self._run,
            inputs,
            [self.progress, *self.buttons, *self.results.outputs],
            validator=self._validate,
            show_progress="minimal",
            show_progress_on=self.progress,
            **DEVICE,
        )
        self.stop.click(self._stop, None, None, **QUIET)
        self.leave.click(self._left, None, [self.progress, *self.buttons], cancels=[started], **QUIET)
        self.results.run_id.change(None, self.results.run_id, None, js=SET_ADDRESS, api_visibility="private")

    # ---- what others may show here

    def show(self, run: Run) -> Updates:
        return {
            **self.fill({**run.settings, "prompt": run.prompt}),
            **self.results.show(run),
            self.progress: notes.ended(run),
        }

    def fill(self, settings: Mapping[str, Any]) -> Updates:
        prompt = {self.prompt: settings["prompt"]} if "prompt" in settings else {}
        return {**prompt, **self.form.filled(settings)}

    def greet(self) -> Updates:
        """What a fresh page shows: the length of the prompt it opens with."""
        count = self.host.tokens(self.prompt.value, False, PairChoice())
        return {self.count: notes.tokens(count, Settings.max_new_tokens), **self._offer_template(PairChoice())}

    # ---- handlers

    def _count(self, noted: list[Any], choice: PairChoice) -> tuple[str, str]:
        """The prompt's tokens against the limit, and a link that fills this form."""
        values = self.noted.read(noted)
        count = self.host.tokens(values[self.prompt], self.form.value(values, "chat_template"), choice)
        return notes.tokens(count, self.form.value(values, "max_new_tokens")), self.form.link(
            values, values[self.prompt]
        )

    def _offer_template(self, choice: PairChoice) -> Updates:
        """The chat template's switch, only where the tokenizer has one."""
        return {self.form.chat_template: gr.update(visible=self.host.has_chat_template(choice))}

    def _preset(self, name: str) -> Updates:
        return {self.preset: gr.skip()} if name == CUSTOM else self.form.filled(presets.SETTINGS[name].to_json())

    def _faults(self, values: Values, choice: PairChoice) -> dict[Any, str]:
        """A message for each field that cannot be used; a fault in a fold is told at the decoders too, as the fold may be shut."""
        faults: dict[Any, str] = {}
        for fault, message in self.form.faults(values):
            faults[fault.component] = message
            faults.setdefault(self.form.decoders, message)
        if not values[self.form.decoders]:
            faults[self.form.decoders] = "No decoder is chosen; choose at least one."
        if not values[self.prompt].strip():
            faults[self.prompt] = "The prompt is empty; write a few words, or take an example."
        elif not faults:
            try:
                self.host.admit(values[self.prompt], self.form.settings(values), choice)
            except InputError as error:
                faults[self.prompt] = str(error)
        return faults

    def _queued(self, noted: list[Any], choice: PairChoice) -> Updates:
        """What is wrong; or, until the device is free, the way out of the queue."""
        faults = self._faults(self.noted.read(noted), choice)
        if faults:
            return self.noted.told(faults)
        note = notes.note("Waiting for the device: your place in the queue is on the right.")
        waiting = {self.progress: note, self.run: gr.update(visible=False), self.leave: gr.update(visible=True)}
        return {**self.noted.told({}), **waiting}

    def _validate(self, noted: list[Any], choice: PairChoice) -> list[Any]:
        """What `_queued` finds fault with does not run, nor wait for the device."""
        return [gr.validate(not self._faults(self.noted.read(noted), choice), ""), gr.validate(True, "")]

    def _left(self) -> Updates:
        return {self.progress: notes.note("You left the queue."), **self._idle()}

    def _stop(self, request: gr.Request) -> None:
        self.host.stop(request.session_hash)

    def _run(self, noted: list[Any], choice: PairChoice, request: gr.Request) -> Iterator[Updates]:
        """One comparison, streamed. Closing this generator, as when the tab is closed, ends the decoder and frees its memory."""
        values = self.noted.read(noted)
        prompt, settings = values[self.prompt], self.form.settings(values)
        panels, shared = LivePanels(prompt, settings), shares_cores(request)
        running = {
            self.run: gr.update(visible=False),
            self.stop: gr.update(visible=True),
            self.leave: gr.update(visible=False),
        }
        with self.host.stoppable(request.session_hash) as stopped:
            yield {**self.results.clear(), **running, self.progress: notes.note("Preparing the models")}
            try:
                with closing(self.host.decode(prompt, settings, choice, stopped)) as events:
                    for event in events:
                        if isinstance(event, Ended):
                            shown = self.results.show(event.run) if event.run.results else {}
                            yield {**shown, self.progress: notes.ended(event.run), **self._idle()}
                            return
                        panels.update(event)
                        if isinstance(event, Finished):
                            continue  # drawn with what follows at once
                        progress = notes.progress(event, len(panels.results), panels.jobs)
                        yield {self.results.strip: panels.value(), self.progress: progress}
                        if shared:
                            time.sleep(DRAWING_SECONDS)
                yield {self.progress: notes.note("Stopped."), **self._idle()}
            except InputError as error:
                yield {self.progress: notes.note(str(error), "alert"), **self._idle()}

    def _idle(self) -> Updates:
        return {
            self.run: gr.update(visible=True),
            self.stop: gr.update(visible=False),
            self.leave: gr.update(visible=False),
        }


def shares_cores(request: gr.Request) -> bool:
    """Whether the visitor's browser runs on this machine, and its processor decodes."""
    return default_device().type == "cpu" and getattr(request.client, "host", None) in HERE
