"""The tab for batches: a set of prompts, decoders, batch sizes, and schemes for sharing a batch."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.page.host import Host
from workbench.page.parts import batch_card, words
from workbench.page.parts.batch_results import BatchResults
from workbench.page.parts.form import SettingsForm
from workbench.page.parts.runner import Runner, Wiring
from workbench.page.tabs.compare import CompareTab
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Faults, NotedForm, Updates, Values
from workbench.runs.events import Ended, Event, Finished
from workbench.runs.record import Run
from workbench.runs.shipped import shipped
from workbench.studies import prompts
from workbench.studies.batch import DEFAULTS, Batch, bounds
from workbench.studies.prompts import PromptSet
from workbench.studies.schemes import SCHEMES
from workbench.studies.text import counted

SIZES = (1, 2, 4, 8, 12, 16, 20, 24)  # the paper's
CHOSEN_SIZES = (1, 4, 8, 16)
OWN = "own"
SETS = [("Prompts that repeat themselves", "refrains"), ("Openings of stories", "stories"), ("A file of yours", OWN)]
START = {**DEFAULTS, "decoders": ["lookup", "speculative"], "max_new_tokens": 32, "temperature": 0.0}
PROMPTS = 24
DRAWN_SECONDS = 2.0  # between two drawings of a study that grows: a browser takes a quarter of a second for one, on cores that decode
NO_FILE = "No file is chosen; choose one, or take a built-in set."
INTRODUCTION = (
    "Requests of one batch accept different numbers of draft tokens. A framework with aligned tensors pads inputs and caches to the "
    "longest; the engine here needs no padding (EMS-SD). All schemes give the same tokens: this "
    "tab measures what they cost, with the pair that the Compare tab has loaded."
)


class BatchTab:
    """`show(run)` fills the whole tab with a past run, `fill(study)` only its form; both give updates for `outputs`."""

    id = "batch"

    def __init__(self, host: Host, compare: CompareTab):
        self.host = host
        self.pair = compare.pairs.choice
        self.form = SettingsForm(START, host.limits.of_settings, "batch-decoders", bounds())
        self.runner = Runner(host, self.id)
        with gr.Tab("Batch", id=self.id, elem_id="batch") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        with gr.Row():
            with gr.Column(min_width=320):
                self.set = gr.Radio(SETS, value=SETS[0][1], label="Prompts", elem_id="batch-prompts")
                self.file = gr.File(
                    label='A text file with one prompt per line, or .jsonl with a "prompt" in each line', visible=False,
                    file_types=[".txt", ".jsonl"], height=120, elem_id="batch-file",
                )  # fmt: skip
                self.read = gr.HTML(elem_id="batch-file-note", elem_classes="wb-note")
                self.asked = gr.HTML(words.note(words.chosen(START)), elem_id="batch-asked", elem_classes="wb-note")
                # Not in the fold: a shut fold is not on the page, and the button puts this link into the address.
                self.share = gr.HTML(elem_id="batch-settings-link", elem_classes="wb-note")
                with gr.Row():
                    self.runner.lay_out_buttons("Measure", "batch-")
            with gr.Column(min_width=320):
                with gr.Row():
                    self.count = gr.Number(
                        PROMPTS, label="Number of prompts", info="the first ones of the set", precision=0, minimum=1, min_width=140,
                        elem_id="batch-count",
                    )  # fmt: skip
                    self.ignore_eos = gr.Checkbox(
                        True, label="ignore end of text", info="gives every output the same length", min_width=180,
                        elem_id="batch-eos",
                    )  # fmt: skip
                self.sizes = gr.CheckboxGroup(
                    list(SIZES), value=list(CHOSEN_SIZES), label="Batch sizes", elem_id="batch-sizes"
                )
                self.schemes = gr.CheckboxGroup(
                    [(scheme.label, name) for name, scheme in SCHEMES.items()], value=list(SCHEMES), label="Schemes",
                    info="What a batch leaves unpadded; a dynamic one gives a finished request's place to the next.",
                    elem_id="batch-schemes",
                )  # fmt: skip
        with gr.Accordion("Decoders, settings", open=False, elem_id="batch-form"):
            self.form.lay_out_decoders()
            with gr.Accordion("Settings", open=False, elem_id="batch-settings"):
                self.form.lay_out_settings()
        self.runner.lay_out_progress("batch-")
        self.results = BatchResults()
        if found := shipped():
            batch_card.lay_out(found)
        # What a file contains, or why it cannot be read. Files are read once, when they are uploaded; no path comes with the form.
        self.own = gr.State(NO_FILE)
        fields = [self.set, self.count, self.ignore_eos, self.sizes, self.schemes, *self.form.components]
        self.noted = NotedForm(fields)

    @property
    def outputs(self) -> list[Any]:
        fields = [self.set, self.file, self.own, self.read, self.count, self.ignore_eos, self.sizes, self.schemes]
        return [*fields, *self.runner.outputs, *self.form.outputs, *self.results.outputs]

    def _wire(self) -> None:
        self.set.change(lambda name: gr.update(visible=name == OWN), self.set, self.file, **QUIET)
        # Not `change`: that follows the emptied box of a run that is opened, too, and would take its prompts away.
        self.file.upload(self._read, self.file, [self.own, self.read], **QUIET)
        self.file.clear(lambda: (NO_FILE, ""), None, [self.own, self.read], **QUIET)
        self.tab.select(self._offer, self.pair, [*self.form.offered.values()], **QUIET)
        asked = [self.share, self.asked]
        self.noted.values.change(self._asked, self.noted.values, asked, trigger_mode="always_last", **QUIET)
        results = self.results
        wiring = Wiring(
            self.noted, self.pair, [self.own], self._study, self.set, [results.decoder, results.decoding], self._follow, results.outputs
        )  # fmt: skip
        self.runner.wire(wiring)

    # ---- what others may show here

    def show(self, run: Run) -> Updates:
        shown = {**self.results.show(run), **self.results.kept.show(run)} if run.results else {}
        return {**self.fill(run.study), **shown, self.runner.progress: words.outcome(run)}

    def fill(self, study: Mapping[str, Any]) -> Updates:
        """The form showing this study, as `Batch.to_json` has it; what it leaves out has its default."""
        chosen, settings = study.get("prompts", {}), study.get("settings", {})
        name, built_in = chosen.get("name", SETS[0][1]), chosen.get("name", SETS[0][1]) in prompts.BUILT_IN
        updates = {
            self.set: name if built_in else OWN,
            self.file: gr.update(value=None, visible=not built_in),
            self.count: chosen.get("count", PROMPTS),
            self.ignore_eos: settings.get("ignore_eos", True),
            self.sizes: list(settings.get("sizes", CHOSEN_SIZES)),
            self.schemes: list(settings.get("schemes", SCHEMES)),
        }
        updates |= dict(
            zip(
                (self.own, self.read),
                (NO_FILE, "") if built_in else _held(lambda: PromptSet.from_json(chosen)),
                strict=True,
            )
        )
        return {**updates, **self.form.filled({**START, **settings})}

    # ---- handlers

    def _read(self, path: str | None) -> tuple[PromptSet | str, str]:
        """The prompts of a file that was given; Gradio lets no path through that it has not made itself."""
        return (NO_FILE, "") if path is None else _held(lambda: prompts.read(path))

    def _study(self, values: Values, own: PromptSet | str) -> Batch:
        faults = self.form.faults(values)
        for field, name in ((self.sizes, "batch size"), (self.schemes, "scheme")):
            if not values[field]:
                faults[field] = f"No {name} is chosen; choose at least one."
        found = own if values[self.set] == OWN else prompts.built_in(values[self.set])
        if isinstance(found, str):
            faults[self.set] = found
        if not values[self.count]:
            faults[self.count] = "The number of prompts is empty; give at least 1."
        if faults or isinstance(found, str):
            raise Faults(faults)
        data = self._typed(values)
        try:
            return Batch.from_json({**data, "prompts": found.first(int(values[self.count])).to_json()})
        except InputError as error:
            raise Faults({self.schemes: str(error)}) from None

    def _typed(self, values: Values) -> dict[str, Any]:
        """What the form says, as `Batch.to_json` has it, unchecked."""
        own = {
            "sizes": values[self.sizes],
            "schemes": values[self.schemes],
            "ignore_eos": values[self.ignore_eos],
        }
        chosen = {"name": values[self.set], "count": values[self.count]}
        return {"prompts": chosen, "settings": {**self.form.typed(values), **own}}

    def _asked(self, noted: list[Any]) -> tuple[str, str]:
        """A link that fills this form, and what it asks for."""
        data = self._typed(self.noted.read(noted))
        sizes, count = data["settings"]["sizes"], data["prompts"]["count"]
        large = [size for size in sizes if count and size > count]
        again = f" · batches of {max(large)} take prompts twice: only {count:g} are chosen" if large else ""
        return words.settings_link(Batch.kind, data), words.note(words.chosen(data["settings"]) + again)

    def _offer(self, choice: Any) -> Updates:
        """The chat template's switch, only if the tokenizer has one; that of penalties, only if the target asks for some."""
        return self.form.offer(self.host.offers(choice))

    def _follow(self, study: Batch, decoder: str | None, decoding: bool) -> "_Live":
        return _Live(self.results, decoder, decoding)


def _held(find: Callable[[], PromptSet]) -> tuple[PromptSet | str, str]:
    """The prompts, or why there are none; and a note that says it."""
    try:
        found = find()
    except InputError as error:
        return str(error), words.note(str(error), "alert")
    return found, words.note(f"{found.name}: {counted(len(found.prompts), 'prompt')}")


class _Live:
    """The figures of a batch study while it grows; `decoder` and `decoding` are what the visitor looks at."""

    def __init__(self, results: BatchResults, decoder: str | None, decoding: bool):
        self._results, self._looked_at = results, (decoder, decoding)
        self._drawn = 0.0

    def begin(self) -> Updates:
        return self._results.clear()

    def update(self, event: Event) -> Updates:
        if isinstance(event, Ended) and event.run.results:
            kept = self._results.kept.show(event.run, bool(event.unkept))
            return {**self._results.show(event.run, *self._looked_at), **kept}
        if not isinstance(event, Finished) or time.monotonic() < self._drawn + DRAWN_SECONDS:
            return {}
        self._drawn = time.monotonic()
        return self._results.show(event.run, *self._looked_at)
