"""The tab for batches: a set of prompts, decoders, batch sizes, and ways to lay a batch out."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.measuring.batch import BatchEvent, Ended, Progress, measure
from workbench.measuring.device import steadily
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import batch_card
from workbench.page.parts import words as notes
from workbench.page.parts.batch_results import BatchResults
from workbench.page.parts.form import Control, SettingsForm, Values, control
from workbench.page.parts.results import Updates
from workbench.page.tabs.compare import CompareTab
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.runs.shipped import shipped
from workbench.studies import prompts
from workbench.studies.batch import BatchSettings, bounds
from workbench.studies.batch_records import WAYS, way_label
from workbench.studies.limits import on_device, zero_gpu
from workbench.studies.prompts import PromptSet
from workbench.studies.text import parse

SIZES = (1, 2, 4, 8, 12, 16, 20, 24)  # the paper's
OWN = "own"
SETS = [("Prompts that repeat themselves", "refrains"), ("Openings of stories", "stories"), ("A file of yours", OWN)]
START = {"decoders": ["lookup", "speculative"], "max_new_tokens": 32, "temperature": 0.0}
PUBLIC_PROMPTS = 24
INTRODUCTION = (
    "Requests of one batch accept different numbers of draft tokens. A framework with aligned tensors pads inputs and caches to the "
    "longest; the engine here needs no padding (EMS-SD). All ways give the same tokens: what "
    "they cost is measured here, with the pair that the first tab has loaded."
)


class BatchTab:
    def __init__(self, host: Host, compare: CompareTab):
        self.host = host
        self.pair = compare.pairs.choice
        self.form = SettingsForm(START, "batch-decoders")
        self._measure = on_device(self._measure_here)
        with gr.Tab("Batch", id="batch", elem_id="batch") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        with gr.Row():
            with gr.Column(min_width=320):
                self.set = gr.Radio(SETS, value=SETS[0][1], label="Prompts", elem_id="batch-prompts")
                self.file = gr.File(
                    label='A text file with one prompt a line, or .jsonl with a "prompt" in each line', visible=False,
                    file_types=[".txt", ".jsonl"], height=120, elem_id="batch-file",
                )  # fmt: skip
                self.form.lay_out_decoders()
            with gr.Column(min_width=320):
                with gr.Row():
                    self.count = gr.Number(
                        PUBLIC_PROMPTS, label="How many", info="the first of the set", precision=0, minimum=1, min_width=140,
                        elem_id="batch-count",
                    )  # fmt: skip
                    self.ignore_eos = gr.Checkbox(
                        True, label="go on behind the end of a text", info="so that all are of one length", min_width=180,
                        elem_id="batch-eos",
                    )  # fmt: skip
                self.sizes = gr.CheckboxGroup(
                    list(SIZES), value=[1, 4, 8, 16], label="Batch sizes", elem_id="batch-sizes"
                )
                self.ways = gr.CheckboxGroup(
                    [(way.label, name) for name, way in WAYS.items()], value=list(WAYS), label="Ways", elem_id="batch-ways",
                    info="What a batch leaves unpadded; a dynamic one gives a finished request's place to the next.",
                )  # fmt: skip
                with gr.Row():
                    self.run = gr.Button("Measure", variant="primary", size="lg", elem_id="batch-run")
                    self.stop = gr.Button("Stop", variant="stop", size="lg", visible=False, elem_id="batch-stop")
                    self.leave = gr.Button("Leave the queue", size="lg", visible=False, elem_id="batch-leave")
        with gr.Accordion("Settings", open=False, elem_id="batch-settings"):
            with gr.Row():
                self.bounds = [control("batch", field, field.default) for field in bounds()]
            self.form.lay_out_settings()
        self.progress = gr.HTML(elem_id="batch-progress", elem_classes="wb-note")
        self.results = BatchResults()
        if found := shipped():
            batch_card.lay_out(found)

    def _wire(self) -> None:
        buttons = [self.run, self.stop, self.leave]
        results = self.results
        inputs = {
            self.pair, self.set, self.file, self.count, self.ignore_eos, self.sizes, self.ways, results.decoder, results.decoding,
            *self.form.components, *(each.component for each in self.bounds),
        }  # fmt: skip
        self.set.change(lambda name: gr.update(visible=name == OWN), self.set, self.file, **QUIET)
        self.tab.select(self._offer_template, self.pair, self.form.chat_template, **QUIET)
        self.run.click(self._queued, inputs, buttons, **QUIET)
        started = self.run.click(
            self._run, inputs, [self.progress, *buttons, *results.outputs], validator=self._validate,
            show_progress="minimal", show_progress_on=self.progress, **DEVICE,
        )  # fmt: skip
        self.stop.click(self._stop, None, None, **QUIET)
        self.leave.click(self._left, None, [self.progress, *buttons], cancels=[started], **QUIET)

    # ---- handlers

    def _offer_template(self, choice: PairChoice) -> Updates:
        """The chat template's switch, only where the tokenizer has one."""
        return {self.form.chat_template: gr.update(visible=self.host.has_chat_template(choice))}

    def _faults(self, values: Values) -> Updates:
        """A message for each field that cannot be used; a fault in the settings is told at the decoders too, as the fold may be shut."""
        faults: Updates = {}
        for fault, message in (*self.form.faults(values), *self._bound_faults(values)):
            faults[fault.component] = message
            faults.setdefault(self.form.decoders, message)
        for field, name in ((self.form.decoders, "decoder"), (self.sizes, "batch size"), (self.ways, "way")):
            if not values[field]:
                faults[field] = f"No {name} is chosen; choose at least one."
        if not faults:
            try:
                self._settings(values)
            except InputError as error:
                faults[self.ways] = str(error)
        return faults

    def _bound_faults(self, values: Values) -> Iterator[tuple[Control, str]]:
        for each in self.bounds:
            try:
                each.read(values[each.component])
            except InputError as error:
                yield each, str(error)

    def _validate(self, values: Values) -> Updates:
        faults = self._faults(values)
        return {field: gr.validate(field not in faults, faults.get(field, "")) for field in values}

    def _queued(self, values: Values) -> Updates:
        if self._faults(values):
            return {self.run: gr.skip()}
        return {self.run: gr.update(visible=False), self.leave: gr.update(visible=True)}

    def _left(self) -> Updates:
        return {self.progress: notes.note("You left the queue."), **self._idle()}

    def _stop(self, request: gr.Request) -> None:
        self.host.stop(request.session_hash)

    def _run(self, values: Values, request: gr.Request) -> Iterator[Updates]:
        """One experiment, streamed. Closing this generator, as when the tab is closed, ends it and frees its memory."""
        looked_at = values[self.results.decoder], values[self.results.decoding]
        with self.host.stoppable(request.session_hash) as stopped:
            running = {self.stop: gr.update(visible=True), self.leave: gr.update(visible=False)}
            yield {**self.results.clear(), **running, self.progress: notes.note("Preparing the models")}
            try:
                chosen, settings = self._prompts(values), self._settings(values)
                self.host.limits.check(settings.decoding.max_new_tokens, settings.decoding.repeats)
                # An event does not cross into ZeroGPU's process; there closing the generator ends the job.
                cancel, pair = None if zero_gpu() else stopped, values[self.pair]
                job = steadily(self.host.thread, lambda: self._measure(chosen, settings, pair, cancel))
                with closing(job) as events:
                    for event in events:
                        yield from self._updates(event, looked_at)
                        if zero_gpu() and stopped.is_set():
                            break
            except InputError as error:
                yield {self.progress: notes.note(str(error), "alert")}
            yield self._idle()

    def _measure_here(
        self, chosen: PromptSet, settings: BatchSettings, choice: PairChoice, cancel: Any
    ) -> Iterator[BatchEvent]:
        yield from measure(self.host.pairs.get(choice), chosen, settings, cancel=cancel)

    def _updates(self, event: BatchEvent, looked_at: tuple[str | None, bool]) -> Iterator[Updates]:
        if isinstance(event, Progress):
            yield {self.progress: _progress(event)}
        elif event.run.decoders:
            yield self.results.show(event.run, *looked_at)
        if isinstance(event, Ended):
            words = "Stopped" if event.run.cancelled else "Done"
            seconds = sum(c.seconds for c in event.run.cells)
            yield {
                self.progress: notes.note(
                    f"{words} · {len(event.run.cells)} measurements · {seconds:.1f} s of the models' work"
                )
            }

    def _prompts(self, values: Values) -> PromptSet:
        if values[self.set] != OWN:
            found = prompts.built_in(values[self.set])
        elif values[self.file] is None:
            raise InputError("No file is chosen; choose one, or take a built-in set.")
        else:
            found = prompts.read(values[self.file])  # Gradio's own copy: it refuses a path that it has not made itself
        count = int(values[self.count] or 0)
        if self.host.limits.public and count > PUBLIC_PROMPTS:
            raise InputError(f"At most {PUBLIC_PROMPTS} prompts here; ask for fewer, or run it on your own machine.")
        return found.first(count)

    def _settings(self, values: Values) -> BatchSettings:
        """What the form says. Raises InputError where it cannot be used."""
        bound = {each.field.name: parse(each.field, values[each.component]) for each in self.bounds}
        sizes, ways = tuple(values[self.sizes]), tuple(values[self.ways])
        return BatchSettings(self.form.settings(values), sizes, ways, values[self.ignore_eos], **bound)

    def _idle(self) -> Updates:
        return {
            self.run: gr.update(visible=True),
            self.stop: gr.update(visible=False),
            self.leave: gr.update(visible=False),
        }


def _progress(event: Progress) -> str:
    """Which measurement, token n of N, and a bar for the whole experiment."""
    words = [
        f"{event.decoder.replace('_', ' ')} ({event.job + 1} of {event.jobs})",
        f"batch size {event.batch_size}: {way_label(event.decoder, event.batch_size, event.way)}",
        f"token {event.tokens} of {event.budget}",
    ]
    return notes.note(" · ".join(words)) + notes.bar((event.job + event.tokens / event.budget) / event.jobs)
