"""The tab for batches: a set of prompts, decoders, batch sizes, and schemes for sharing a batch.

Its results are findings in sentences, charts, two tables and links to the run; below them stands a
card with runs that were measured beforehand.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gradio as gr

from decoders import InputError
from workbench.kinds.batch import START, Batch, findings, paper_table
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.frame import Figures, StudyTab, plot
from workbench.page.widgets import QUIET, READ_ONCE, Faults, Updates, Values, given
from workbench.runs.figures import BatchFigures, label
from workbench.runs.record import Run
from workbench.show import batch, tables
from workbench.studies import prompts
from workbench.studies.settings import counted
from workbench.studies.study import SCHEMES

COLUMNS = (
    "*decoding*: tokens/s without each batch's first round, which reads the prompts · *at once*: "
    "the most requests in flight, fewer than the batch size if a memory budget makes some wait · "
    "*cache*: the most that a single request held for one model · *same*: whether the output "
    "equals that of the first scheme measured"
)


class BatchResults(Figures):
    """The findings, charts and tables of a run; charts follow the chosen decoder and time.

    While a study runs, findings and figures grow. To draw charts takes a browser a quarter of a
    second, on cores that decode: they come at its end.
    """

    def lay_out(self, prefix: str) -> list[Any]:
        self.run = gr.State()
        self.verdict = gr.HTML(elem_id="batch-verdict", elem_classes="wb-note")
        # A run that was stopped during greedy has nothing to draw.
        with gr.Column(elem_id="batch-drawn") as self.charts:
            with gr.Row():
                self.decoder = gr.Radio(
                    [], label="Figures of", elem_id="batch-decoder", scale=2, min_width=320
                )
                self.decoding = gr.Checkbox(
                    label="Leave out the reading of prompts",
                    info="As in the paper. Not available when prompts are read during decoding "
                    "(dynamic batches, prefill chunks, memory budget).",
                    elem_id="batch-decoding",
                    min_width=320,
                )
            with gr.Row():
                plots = []
                for title, says, _ in batch.CARDS:
                    with gr.Column(min_width=340):
                        gr.Markdown(f"### {title}\n\n{says}", elem_classes="wb-note")
                        plots.append(plot(elem_classes="chart"))
            # The parts that follow the choice of decoder and time.
            self.shapes = [*plots, gr.HTML(elem_id="batch-paper", elem_classes="wb-note")]
        self.table = gr.HTML(elem_id="batch-figures", elem_classes="wb-note")
        gr.Markdown(COLUMNS, elem_classes="wb-note")
        gr.on(
            [self.decoder.input, self.decoding.input],
            self._draw,
            [self.run, self.decoder, self.decoding],
            self.shapes,
            **QUIET,
        )
        chosen = [self.decoder, self.decoding]
        return [self.run, self.verdict, self.charts, *chosen, *self.shapes, self.table]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        if not run.results:
            return {}
        decoders = BatchFigures(run).decoders
        decoder = next(iter(decoders), None)
        return {
            **super().show(run, unkept),
            self.run: run,
            self.charts: gr.update(visible=bool(decoders)),
            self.decoder: gr.update(choices=[(label(d), d) for d in decoders], value=decoder),
            self.decoding: False,
            **dict(zip(self.shapes, self._draw(run, decoder, False), strict=True)),
        }

    def growing(self, run: Run) -> Updates:
        says = "".join(map(words.note, findings(run)))
        return {
            self.box: gr.update(visible=True),
            self.charts: gr.update(visible=False),
            self.verdict: says + words.source(run) + words.timing(run),
            self.table: tables.markup(tables.figures(run)),
        }

    def _draw(self, run: Run | None, decoder: str | None, decoding: bool) -> list[Any]:
        if run is None or decoder is None:
            return [gr.skip()] * len(self.shapes)
        figures = BatchFigures(run)
        table = tables.markup(paper_table(figures, decoder, decoding))
        return [
            *(card.draw(figures, decoder, decoding) for card in batch.CARDS),
            f"<h3>{label(decoder)}: tokens/s (times greedy in the same kind of batch)</h3>{table}",
        ]


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
    folded = "Sizes, schemes, decoders, settings"
    opening: ClassVar[Mapping[str, Any]] = OPENING
    linked: ClassVar[Mapping[str, Any]] = OPENING

    results: BatchResults

    def lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        with gr.Row(equal_height=True):
            with gr.Column(scale=5, min_width=320):
                self.set = gr.Radio(
                    SETS, value=SETS[0][1], label="Prompts", elem_id="batch-prompts"
                )
                self.file = gr.File(
                    label="A text file with one prompt per line, or .jsonl with a "
                    '"prompt" in each line', elem_id="batch-file",
                    visible=False, file_types=[".txt", ".jsonl"], height=120,
                )  # fmt: skip
                self.read = gr.HTML(elem_id="batch-file-note", elem_classes="wb-note")
            with gr.Column(scale=1, min_width=160), gr.Row(equal_height=True):
                self.runner.lay_out_buttons(self.study.verb)
        with gr.Row(elem_classes="chips"):
            self.lay_out_asked()
        self.lay_out_folds()
        self.results = BatchResults(self.prefix)
        # The prompts of the file, which is read once, or the reason why it cannot be read.
        self.own = gr.State(NO_FILE)
        self.inputs = [self.set, self.count, self.ignore_eos, self.sizes, self.schemes]
        self.more = [self.own]

    def lay_out_more(self) -> None:
        with gr.Row():
            self.count = gr.Number(
                PROMPTS, label="Number of prompts", precision=0, minimum=1, min_width=140,
                info="taken from the start of the set", elem_id="batch-count",
            )  # fmt: skip
            self.ignore_eos = gr.Checkbox(
                True, label="ignore end of text", info="gives every output the same length",
                min_width=180, elem_id="batch-eos",
            )  # fmt: skip
        self.sizes = gr.CheckboxGroup(
            list(SIZES), value=list(CHOSEN_SIZES), label="Batch sizes", elem_id="batch-sizes"
        )
        self.schemes = gr.CheckboxGroup(
            [(scheme.label, name) for name, scheme in SCHEMES.items()],
            value=list(SCHEMES), label="Schemes", elem_id="batch-schemes",
            info="Inputs, caches, both or neither are padded. In a dynamic batch, the next "
            "request takes a finished one's place.",
        )  # fmt: skip

    def unfolded(self, faults: Mapping[Any, str]) -> Updates:
        return self.doors if faults.keys() - {self.set} else {}

    @property
    def fields(self) -> list[Any]:
        return [*self.inputs, self.file, self.own, self.read]

    def _wire(self) -> None:
        super()._wire()
        self.set.change(lambda name: gr.update(visible=name == OWN), self.set, self.file, **QUIET)
        # Not `change`: if a run is opened, that follows its emptied box, too, and would take its
        # prompts away.
        self.file.upload(self._read, self.file, [self.own, self.read], **QUIET, **READ_ONCE)
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
        count, sizes = data["prompts"]["count"], data["settings"]["sizes"]
        says = (
            f"{count or 0:g} prompts in batches of {', '.join(map(str, sizes)) or 'no size'} · "
            f"{words.chosen(data['settings'])}"
        )
        if large := [size for size in sizes if count and size > count]:
            says += f" · batches of {max(large)} use some prompts twice: only {count:g} are chosen"
        return says

    def _chosen(self, values: Values, own: prompts.PromptSet | str) -> prompts.PromptSet | str:
        return own if values[self.set] == OWN else prompts.built_in(values[self.set])

    def _read(self, data: Any) -> tuple[prompts.PromptSet | str, str]:

        def read() -> prompts.PromptSet:
            file: Any = given(data)
            return prompts.parse(file.name, file.content)

        return (NO_FILE, "") if data is None else _held(read)


def _held(find: Callable[[], prompts.PromptSet]) -> tuple[prompts.PromptSet | str, str]:
    """The prompts, or the reason why there are none; and a note about them."""
    try:
        chosen = find()
    except InputError as error:
        return str(error), words.note(str(error), "alert")
    return chosen, words.note(f"{chosen.name}: {counted(len(chosen.prompts), 'prompt')}")


TAB = BatchTab
