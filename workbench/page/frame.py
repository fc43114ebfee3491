"""The tab of a kind of study: a form, Run, progress, and the results of this or a past run."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gradio as gr

from workbench.models.presets import PairChoice, tuned
from workbench.page import words
from workbench.page.form import SettingsForm
from workbench.page.host import Host
from workbench.page.runner import Runner
from workbench.page.widgets import QUIET, Faults, NotedForm, Updates, Values, room
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.runs.store import Recording, recordings
from workbench.show import tables
from workbench.studies import prompts
from workbench.studies.study import Study

SAVING = "".join(
    f'<button type="button" data-save="{kind.lower()}" aria-label="Save this chart as {kind}">'
    f"{kind}</button>"
    for kind in ("SVG", "PNG")
)


def plot(**options: Any) -> gr.Plot:
    with gr.Column(min_width=300, elem_classes="wb-plot"):
        chart = gr.Plot(show_label=False, container=False, **options)
        gr.HTML(SAVING, elem_classes="wb-save", padding=False)
    return chart


class Kept:
    """Links to a run and its files, and its environment; its id goes into the page's address.

    Args:
        prefix: the beginning of the `elem_id` of each part
        apart: whether the environment stands in another place: `lay_out_environment` puts it there
    """

    def __init__(self, prefix: str = "", apart: bool = False) -> None:
        self.prefix, self.apart = prefix, apart
        with gr.Column(visible=False, elem_classes="kept-box") as self.box:
            self.link = gr.HTML(elem_classes="wb-note", elem_id=f"{prefix}run-link")
            if not apart:
                self.lay_out_environment()
        self.run_id = gr.Textbox(visible="hidden")
        self.run_id.change(
            None, self.run_id, None, api_visibility="private",
            js=f"(id) => WorkbenchPage.address(id, '{prefix}')",
        )  # fmt: skip

    def lay_out_environment(self) -> None:
        with gr.Accordion("Environment of these measurements", open=False):
            self.environment = gr.HTML(elem_id=f"{self.prefix}environment", elem_classes="wb-note")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.link, self.environment, self.run_id]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.link: words.share(run, unkept) if self.apart else words.kept(run, unkept),
            self.environment: words.environment(run),
            self.run_id: "" if unkept else run.id,
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), self.run_id: ""}


class Figures:
    """The default results: a table of figures, notes on timings, and links.

    They show a run while it grows, too. Kinds with other results replace `lay_out` and `growing`.

    Args:
        prefix: the beginning of the `elem_id` of each part
    """

    def __init__(self, prefix: str = "") -> None:
        with gr.Column(visible=False) as self.box:
            parts = self.lay_out(prefix)
        self.kept = Kept(prefix)
        self.parts = [self.box, *parts]

    @property
    def outputs(self) -> list[Any]:
        return [*self.parts, *self.kept.outputs]

    def lay_out(self, prefix: str) -> list[Any]:
        self.table = gr.HTML(elem_id=f"{prefix}figures", elem_classes="wb-note")
        self.timing = gr.HTML(elem_id=f"{prefix}timing", elem_classes="wb-note")
        return [self.table, self.timing]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        return {**self.growing(run), **self.kept.show(run, unkept)}

    def growing(self, run: Run) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.table: tables.markup(tables.figures(run)),
            self.timing: words.timing(run),
        }

    def begin(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}

    def update(self, event: Started | Progress | Finished) -> Updates:
        return self.growing(event.run) if isinstance(event, Finished) else {}


class StudyTab:
    """The tab of a kind of study.

    `show(run)` fills it with a past run, `fill(data)` only its form; both give updates for
    `outputs`. A kind with one prompt needs only the attributes; others lay out their own inputs and
    results.

    Attributes:
        study: the kind's class of studies
        id: the name of the tab in addresses
        title: its name on the page
        prefix: the beginning of the `elem_id` of each of its parts
        in_lab: whether it lies in the tab Lab
        times_quietly: whether a run is in view once it has its texts, and is timed behind that; its
            results can `settle`
        runs_by_link: whether a link to its settings runs them at once
        folded: the title of the fold with decoders and settings
        opening: the study that the form shows at first, as its `to_json` gives it; decoders have
            the settings that are kept with the pair
        start: its settings, with the decoders' own
        linked: the part of that study that links leave out
        shown: the settings that the form shows if a link or a run leaves them out
        empty: the message for an empty prompt
        figures: the class of `results`
        results: the parts that show a run
        prompt: the input of the prompt, if the kind has one prompt
        inputs: the inputs besides decoders and settings; the first shows why a study is refused
        folds: those around decoders and settings
        more: states that `faults` and `made` take besides the form's values
        told: the components that change with the form
        asked: the line that sums up the form
        share: the link to the settings
    """

    study: ClassVar[type[Study]]
    id: ClassVar[str]
    title: ClassVar[str]
    prefix: ClassVar[str]
    in_lab: ClassVar[bool] = False
    times_quietly: ClassVar[bool] = False
    runs_by_link: ClassVar[bool] = True
    folded: ClassVar[str] = "Decoders, settings"
    opening: ClassVar[Mapping[str, Any]]
    linked: ClassVar[Mapping[str, Any]]
    shown: ClassVar[Mapping[str, Any]] = {}
    empty: ClassVar[str] = "The prompt is empty; write a few words."

    figures: ClassVar[type[Figures]] = Figures
    results: Any  # a `Figures`
    inputs: Any  # a list
    folds: Sequence[Any] = ()
    more: Sequence[Any] = ()

    def __init__(self, host: Host, pair: gr.State):
        self.host, self.pair = host, pair
        most, own = host.limits.most, self.study.own()
        self.start = {**tuned(host.first), **self.opening["settings"]}
        engines = [*host.device.engines()] if self.study.asks_engines else ()
        self.form = SettingsForm(self.start, most, f"{self.prefix}decoders", own, engines)
        self.runner = Runner(host, self.study.kind, self.prefix)
        with room(self.title, self.id, self.prefix[:-1] or None, self.in_lab) as self.tab:
            self.lay_out()
            fields = [*self.inputs, *self.form.components]
            # Another pair may have been loaded, and fields of a tab that is not on screen tell no
            # change.
            self.noted = NotedForm(fields, self.study.kind, [self.pair.change, self.tab.select])
            self.opened = gr.State(False)  # whether the visitor has been here
            self.filled = gr.State(False)  # whether a link has filled the form
        self._wire()

    # ---- what a kind may replace

    def lay_out(self) -> None:
        with gr.Row(equal_height=True):
            self.lay_out_prompt(min_width=320)
            with gr.Column(scale=1, min_width=160), gr.Row(equal_height=True):
                self.runner.lay_out_buttons(self.study.verb)
        with gr.Row(elem_classes="chips"):
            self.lay_out_asked()
        self.lay_out_folds()
        self.results = self.figures(self.prefix)

    @property
    def fields(self) -> list[Any]:
        return self.inputs

    def fill(self, data: Mapping[str, Any]) -> Updates:
        """Updates that fill the form.

        Args:
            data: a study, as its `to_json` gives it; parts left out have their default
        """
        return {
            **({self.prompt: prompts.written(data["prompt"])} if "prompt" in data else {}),
            **self.form.filled({**self.shown, **data.get("settings", {})}),
        }

    def typed(self, values: Values) -> dict[str, Any]:
        """The study in the form, as its `to_json` gives it, unchecked."""
        prompt = prompts.typed(values[self.prompt])
        return {"prompt": prompt, "settings": self.form.typed(values)}

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        """The line that sums up the form.

        Args:
            data: the study in the form, as `typed` gives it
            choice: the visitor's pair
        """
        return words.chosen(data["settings"])

    def follow(self, study: Any) -> Any:
        """What shows a study while it runs; its `update` gives {} if it has nothing to draw."""
        return self.results

    def faults(self, values: Values, *more: Any) -> dict[Any, str]:
        return {} if values[self.prompt].strip() else {self.prompt: self.empty}

    def made(self, values: Values, *more: Any) -> Study:
        """The study in the form, once that has no faults."""
        return self.study.from_json(self.typed(values))

    # ---- the same for all kinds

    def lay_out_prompt(self, min_width: int) -> None:
        with gr.Column(scale=5, min_width=min_width):
            self.prompt = gr.Textbox(
                self.opening["prompt"], label="Prompt", lines=1, max_lines=12,
                placeholder="Text for the models to continue or to answer",
                elem_id=f"{self.prefix}prompt",
            )  # fmt: skip
        self.inputs = [self.prompt]

    def lay_out_asked(self) -> None:
        """Lay out the line that sums up the form, and the link.

        They are not in a fold, whose content is not on the page while it is shut.
        """
        self.asked = self.lay_out_summary("asked")
        self.share = self.lay_out_share()
        self.told: list[Any] = [self.share, self.asked]

    def lay_out_summary(self, name: str) -> gr.HTML:
        return gr.HTML(
            words.note(self.says(self.opening, self.host.first)),
            elem_id=f"{self.prefix}{name}", elem_classes=["wb-note", "wb-asked"],
        )  # fmt: skip

    def lay_out_share(self) -> gr.HTML:
        return gr.HTML(
            words.settings_link(
                self.study.kind, {**self.opening, "settings": self.start}, self.linked
            ),
            elem_id=f"{self.prefix}settings-link", elem_classes="wb-note",
        )  # fmt: skip

    def lay_out_folds(self) -> None:
        with gr.Accordion(self.folded, open=False, elem_id=f"{self.prefix}form") as outer:
            self.lay_out_more()
            self.form.lay_out_decoders()
            with gr.Accordion("Settings", open=False, elem_id=f"{self.prefix}settings") as inner:
                self.form.lay_out_settings(self.study.kind)
        self.folds = [outer, inner]
        self.runner.lay_out_progress()
        self.runner.lay_out_again()

    @property
    def doors(self) -> Updates:
        """Updates that show decoders and settings, where a message would not be seen."""
        return {fold: gr.update(open=True) for fold in self.folds}

    def unfolded(self, faults: Mapping[Any, str]) -> Updates:
        inside = {*self.form.components, *self.form.controls}
        return self.doors if faults.keys() & inside else {}

    def lay_out_more(self) -> None:
        """Lay out what the fold with decoders and settings begins with."""

    @property
    def outputs(self) -> list[Any]:
        parts = [*self.runner.outputs, *self.form.components, *self.results.outputs]
        return [*self.fields, self.filled, *parts]

    def show(self, run: Run) -> Updates:
        return {
            **self.fill(run.study),
            **self.results.show(run),
            self.runner.progress: words.outcome(run),
        }

    def _wire(self) -> None:
        self.noted.values.change(
            self._told, [self.noted.values, self.pair], self.told, trigger_mode="always_last",
            **QUIET,
        )  # fmt: skip
        self.runner.wire(self)
        if self.beforehand is not None:
            seen = [self.opened, self.results.kept.run_id, self.filled]
            self.tab.select(self._first, seen, [self.opened, *self.outputs], **self.noted.filling)

    @property
    def beforehand(self) -> Recording | None:
        """The recorded run that the tab opens with; None if its kind has none."""
        return next((each for each in recordings() if each.run.kind == self.study.kind), None)

    def _first(self, opened: bool, id: str, filled: bool) -> Updates:
        """Updates for a tab that is opened: the recorded run, unless it shows or showed another.

        The form agrees with it, unless a link has filled that.
        """
        if opened or id or self.beforehand is None:
            return {self.opened: True}
        run = self.beforehand.run
        return {
            **({} if filled else self.fill(run.study)),
            **self.results.show(run),
            self.results.kept.run_id: "",  # nobody asked for it
            self.opened: True,
        }

    def _told(self, noted: list[Any], choice: PairChoice) -> Updates:
        values = self.noted.read(noted)
        return self.telling(values, self.typed(values), choice)

    def telling(self, values: Values, data: Mapping[str, Any], choice: PairChoice) -> Updates:
        return {
            self.share: words.settings_link(self.study.kind, data, self.linked),
            self.asked: words.note(self.says(data, choice)),
        }

    def asked_for(self, values: Values, *more: Any) -> Study:
        """The study in the form; raises Faults, or InputError for the first input to show."""
        faults = self.form.faults(values) if self.form.components else {}
        if faults := {**faults, **self.faults(values, *more)}:
            raise Faults(faults)
        return self.made(values, *more)
