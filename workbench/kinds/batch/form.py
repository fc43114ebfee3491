"""The tab for batches: a set of prompts, decoders, batch sizes, and schemes for sharing a batch."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gradio as gr

from decoders import InputError
from workbench.kinds.batch.results import BatchResults, LiveBatch, lay_out_card
from workbench.kinds.batch.study import START, Batch
from workbench.models.presets import PairChoice
from workbench.page.parts import words
from workbench.page.parts.frame import StudyTab
from workbench.page.widgets.components import Given, GivenFile, OpenBoxes
from workbench.page.widgets.handlers import QUIET, Faults, Updates, Values
from workbench.runs.recorded import shipped
from workbench.studies import prompts
from workbench.studies.schemes import SCHEMES

SIZES = (1, 2, 4, 8, 12, 16, 20, 24)  # the paper's
CHOSEN_SIZES = (1, 4, 8, 16)
OWN = "own"
SETS = [
    ("Prompts that repeat themselves", "refrains"),
    ("Openings of stories", "stories"),
    ("Questions of eight kinds, asked in a chat", "chats"),
    ("Your own file", OWN),
]
SHOWN = {**START, "max_new_tokens": 32}
PROMPTS = 24
OPENING = {
    "prompts": {"name": SETS[0][1], "count": PROMPTS},
    "settings": {**SHOWN, "sizes": list(CHOSEN_SIZES), "schemes": list(SCHEMES)},
}
NO_FILE = "No file is chosen; choose one, or take a built-in set."
INTRODUCTION = (
    "Does guessing still pay when many prompts are decoded at once? Each prompt keeps another "
    "number of guesses, and the usual batch fills the gaps with padding; the engine here needs "
    "none. All schemes write the same texts; the charts show what each costs."
)


class BatchTab(StudyTab):
    study: ClassVar[type[Batch]] = Batch
    id, title, prefix, in_lab = "batch", "Batch", "batch-", True
    runs_by_link = False  # it takes minutes
    opening: ClassVar[Mapping[str, Any]] = OPENING
    linked: ClassVar[Mapping[str, Any]] = OPENING

    results: BatchResults

    def lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        with gr.Row():
            with gr.Column(min_width=320):
                self.set = gr.Radio(
                    SETS, value=SETS[0][1], label="Prompts", elem_id="batch-prompts"
                )
                self.file = GivenFile(
                    label="A text file with one prompt per line, or .jsonl with a "
                    '"prompt" in each line', elem_id="batch-file",
                    visible=False, file_types=[".txt", ".jsonl"], height=120,
                )  # fmt: skip
                self.read = gr.HTML(elem_id="batch-file-note", elem_classes="wb-note")
                self.lay_out_asked()
                with gr.Row():
                    self.lay_out_buttons()
            with gr.Column(min_width=320):
                with gr.Row():
                    self.count = gr.Number(
                        PROMPTS, label="Number of prompts", precision=0, minimum=1, min_width=140,
                        info="taken from the start of the set", elem_id="batch-count",
                    )  # fmt: skip
                    self.ignore_eos = gr.Checkbox(
                        True, label="ignore end of text", info="gives every output the same length",
                        min_width=180, elem_id="batch-eos",
                    )  # fmt: skip
                self.sizes = OpenBoxes(
                    list(SIZES),
                    value=list(CHOSEN_SIZES),
                    label="Batch sizes",
                    elem_id="batch-sizes",
                )
                self.schemes = gr.CheckboxGroup(
                    [(scheme.label, name) for name, scheme in SCHEMES.items()],
                    value=list(SCHEMES), label="Schemes", elem_id="batch-schemes",
                    info="Inputs, caches, both or neither are padded. In a dynamic batch, the next "
                    "request takes a finished one's place.",
                )  # fmt: skip
        self.lay_out_folds()
        self.results = BatchResults(self.prefix)
        if found := shipped():
            lay_out_card(found)
        # The prompts of the file, which is read once, or the reason why it cannot be read.
        self.own = gr.State(NO_FILE)
        self.inputs = [self.set, self.count, self.ignore_eos, self.sizes, self.schemes]
        self.more, self.looked_at = [self.own], [self.results.decoder, self.results.decoding]

    @property
    def fields(self) -> list[Any]:
        return [*self.inputs, self.file, self.own, self.read]

    def _wire(self) -> None:
        super()._wire()
        self.set.change(lambda name: gr.update(visible=name == OWN), self.set, self.file, **QUIET)
        # Not `change`: if a run is opened, that follows its emptied box, too, and would take its
        # prompts away.
        self.file.upload(self._read, self.file, [self.own, self.read], **QUIET)
        self.file.clear(lambda: (NO_FILE, ""), None, [self.own, self.read], **QUIET)

    def fill(self, data: Mapping[str, Any]) -> Updates:
        chosen, settings = data.get("prompts", {}), data.get("settings", {})
        name = chosen.get("name", SETS[0][1])
        built_in = name in prompts.BUILT_IN
        sizes = [*dict.fromkeys(settings.get("sizes", CHOSEN_SIZES))]
        own, says = (
            (NO_FILE, "") if built_in else _held(lambda: prompts.PromptSet.from_json(chosen))
        )
        return {
            self.set: name if built_in else OWN,
            self.file: gr.update(value=None, visible=not built_in),
            self.count: chosen.get("count", PROMPTS),
            self.ignore_eos: settings.get("ignore_eos", True),
            # A link or a run may have sizes of its own.
            self.sizes: gr.update(choices=sorted({*SIZES, *sizes}), value=sizes),
            self.schemes: list(settings.get("schemes", SCHEMES)),
            self.own: own,
            self.read: says,
            **self.form.filled({**SHOWN, **settings}),
        }

    # ---- the study in the form

    def faults(self, values: Values, *more: Any) -> dict[Any, str]:
        faults: dict[Any, str] = {
            field: f"No {name} is chosen; choose at least one."
            for field, name in ((self.sizes, "batch size"), (self.schemes, "scheme"))
            if not values[field]
        }
        if isinstance(chosen := self._chosen(values, *more), str):
            faults[self.set] = chosen
        if not values[self.count]:
            faults[self.count] = "The number of prompts is empty; give at least 1."
        return faults

    def made(self, values: Values, *more: Any) -> Batch:
        chosen: Any = self._chosen(values, *more)  # there are no faults by now
        try:
            return Batch.from_json(
                {**self.typed(values), "prompts": chosen.first(int(values[self.count])).to_json()}
            )
        except InputError as error:
            raise Faults({self.schemes: str(error)}) from None

    def typed(self, values: Values) -> dict[str, Any]:
        return {
            "prompts": {"name": values[self.set], "count": values[self.count]},
            "settings": {
                **self.form.typed(values),
                "sizes": values[self.sizes],
                "schemes": values[self.schemes],
                "ignore_eos": values[self.ignore_eos],
            },
        }

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        says, count = words.chosen(data["settings"]), data["prompts"]["count"]
        if large := [size for size in data["settings"]["sizes"] if count and size > count]:
            says += f" · batches of {max(large)} use some prompts twice: only {count:g} are chosen"
        return says

    def follow(self, study: Batch, *looked_at: Any) -> LiveBatch:
        return LiveBatch(self.results, *looked_at)

    def _chosen(self, values: Values, own: prompts.PromptSet | str) -> prompts.PromptSet | str:
        return own if values[self.set] == OWN else prompts.built_in(values[self.set])

    def _read(self, file: Given | None) -> tuple[prompts.PromptSet | str, str]:
        """The prompts of an uploaded file, and a note about them."""
        return (
            (NO_FILE, "") if file is None else _held(lambda: prompts.parse(file.name, file.content))
        )


def _held(find: Callable[[], prompts.PromptSet]) -> tuple[prompts.PromptSet | str, str]:
    """The prompts, or the reason why there are none; and a note about them."""
    try:
        chosen = find()
    except InputError as error:
        return str(error), words.note(str(error), "alert")
    return chosen, words.note(chosen.described)


TAB = BatchTab
