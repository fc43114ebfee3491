"""The parts of the Experiments tab: the choice of a plan, progress and report, one text opened."""

import html
import time
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import plan as plans
from workbench.experiments.driver import Background
from workbench.experiments.journal import CellRows, ExperimentProgress, Journal
from workbench.experiments.report import as_html, report, sections
from workbench.kinds.experiment.opened import as_run, prompts
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import QUIET, READ_ONCE, Given, given

OWN = "own"
# Between two drawings of a running experiment; drawing takes time from the timed decoders.
REDRAW_SECONDS = 10.0


class PlanFields:
    """A list of plans, an upload for a visitor's own plan, and the plan's description.

    Args:
        public: whether the machine is shared; it then offers only the project's plans
    """

    def __init__(self, public: bool):
        self.public = public
        shipped = [(f"{name}: {plans.find(name).title}", name) for name in plans.shipped()]
        own = [] if public else [("A plan of yours", OWN)]
        with gr.Column(min_width=320):
            self.plan = gr.Dropdown(
                [*shipped, *own], value="stories", label="Plan", elem_id="experiment-plan"
            )
            self.file = gr.File(
                label="A plan (.toml)", file_types=[".toml"], visible=False, height=120,
                elem_id="experiment-file",
            )  # fmt: skip
            self.own = gr.State(None)  # the file that was uploaded
            self.about = gr.HTML(
                self._about("stories", None), elem_id="experiment-about", elem_classes="wb-note"
            )
        self.chosen = [self.plan, self.own]  # `read` takes their values

    def wire(self) -> None:
        """Connect the fields with each other."""
        self.plan.change(lambda name: gr.update(visible=name == OWN), self.plan, self.file, **QUIET)
        self.plan.change(self._about, self.chosen, self.about, **QUIET)
        gr.on(
            [self.file.upload, self.file.clear],
            self._uploaded,
            [self.plan, self.file],
            [self.own, self.about],
            **QUIET,
            **READ_ONCE,
        )

    def _uploaded(self, plan: str | None, data: Any) -> tuple[Given | None, str]:
        try:
            file = given(data)
        except InputError as error:
            return None, words.note(str(error), "alert")
        return file, self._about(plan, file)

    def read(self, plan: str | None, file: Given | None) -> plans.Plan:
        """The plan that is chosen.

        Args:
            file: the visitor's own plan

        Raises:
            InputError: if none is chosen, or if the file is not a plan
        """
        if plan and plan != OWN:
            return plans.find(plan)
        if not plan or not file or self.public:
            raise InputError("No plan is chosen; choose a plan of the project, or a .toml file.")
        return plans.decoded(file.name, file.content)

    def _about(self, plan: str | None, file: Given | None) -> str:
        try:
            chosen = self.read(plan, file) if plan and (plan != OWN or file) else None
        except InputError as error:
            return words.note(str(error), "alert")
        return words.note(" ".join(chosen.about.split())) if chosen else ""


class ExperimentView:
    """An experiment's progress and report.

    `draw` updates `outputs`. `shown` holds the state drawn last, so that nothing is drawn twice.
    """

    def __init__(self, journal: Journal, background: Background):
        self.journal, self.background = journal, background
        self.progress = gr.HTML(elem_id="experiment-progress", elem_classes="wb-note")
        self.report = gr.HTML(elem_id="experiment-report", elem_classes="wb-note wb-experiment")
        self.shown = gr.State(None)  # (experiment, items done, time) of the last drawing
        self.outputs = [self.progress, self.report, self.shown]

    def draw(
        self, id: str | None, shown: tuple[str, int, float] | None
    ) -> tuple[ExperimentProgress | None, list[Any]]:
        """The experiment's progress, and the values of `outputs`.

        Args:
            id: the experiment's id
            shown: the state drawn last, None if there is none
        """
        try:
            now = self.journal.progress(id) if id else None
        except InputError:  # it is still loading, and so not in the journal
            now = None
        if now is None:
            return None, [self._says(None), "", None]
        if shown is not None and shown[0] == now.id:
            waits = now.running and time.monotonic() - shown[2] < REDRAW_SECONDS
            if waits or shown[1] == now.done:
                return now, [self._says(now), gr.skip(), gr.skip()]
        try:
            whole = report(self.journal, now.id)
        except InputError as error:  # the plan names a decoder that is gone
            return now, [words.note(str(error), "alert"), "", None]
        now = whole.progress
        return now, [
            self._says(now),
            "".join(
                [f"<h3>{html.escape(s.title)}</h3>{as_html(s.content)}" for s in sections(whole)]
            ),
            (now.id, now.done, time.monotonic()),
        ]

    def _says(self, now: ExperimentProgress | None) -> str:
        work = self.background.work
        fault, left = "", ""
        # The fault of an experiment that never began is shown with any other.
        if work and work.fault and work.id in (None, now and now.id):
            fault = words.note(f"{work.title}: {work.fault}", "alert")
        if now is None:
            says = words.note(self.background.says(None)) if self.background.running else ""
            return says + fault
        if now.running and now.eta is not None:
            left = f" · about {words.seconds_left(now.eta)} left"
        says = words.note(self.background.says(now) + left)
        return says + words.bar(now.done / max(1, now.total)) + fault


class Opener:
    """Opens a prompt of a decoder's cell as a run, with its texts, trees and charts.

    Args:
        host: the page's host
    """

    def __init__(self, host: Host, journal: Journal):
        self.host, self.journal = host, journal
        with gr.Accordion(
            "Open a text of this experiment", open=False, elem_id="experiment-texts"
        ) as self.fold:
            with gr.Row():
                self.cell = gr.Dropdown(
                    [], label="Decoder", elem_id="experiment-cell", scale=3, min_width=280
                )
                self.prompt = gr.Dropdown(
                    [], label="Prompt", elem_id="experiment-prompt", min_width=140
                )
                self.open = gr.Button("Open as a run", elem_id="experiment-open", min_width=140)
            self.note = gr.HTML(elem_id="experiment-opened", elem_classes="wb-note")

    def wire(self, past: gr.Dropdown) -> None:
        """Connect the fields; `past` holds the experiment's id.

        The cells are listed as the fold opens: reading them takes time from what is timed.
        """
        chosen, fields = [past, self.cell], [self.cell, self.prompt, self.note]
        gr.on([self.fold.expand, past.input], self._offered, chosen, fields, **QUIET)
        self.cell.input(self._chosen, chosen, self.prompt, **QUIET)
        self.open.click(self._opened, [*chosen, self.prompt], self.note, **QUIET)

    def _cells(self, id: str | None) -> dict[str, CellRows]:
        whole = report(self.journal, id or "")
        return {
            f"{cell.part}: {whole.names(cell.part)[cell.cell]}": cell
            for cell in whole.cells
            if prompts(cell)
        }

    def _offered(self, id: str | None, name: str | None) -> list[Any]:
        try:
            cells = self._cells(id) if id else {}
        except InputError:  # the note above says what is wrong with the experiment
            cells = {}
        name = name if name in cells else next(iter(cells), None)
        return [
            gr.update(choices=[*cells], value=name),
            _numbers(cells.get(name or "")),
            "" if cells else words.note("No text of this experiment can be opened yet."),
        ]

    def _chosen(self, id: str | None, name: str | None) -> Any:
        try:
            return _numbers(self._cells(id).get(name or ""))
        except InputError:
            return gr.skip()

    def _opened(self, id: str | None, name: str | None, number: str | None) -> str:
        try:
            cell = self._cells(id).get(name or "")
            if cell is None or not (number or "").isdecimal():
                raise InputError("Choose a decoder and a prompt.")
            run = as_run(self.journal, id or "", cell.part, cell.cell, int(number or 0) - 1)
            self.host.store.save(run)
        except InputError as error:
            return words.note(str(error), "alert")
        return f'<div role="status">CellRows as <a href="?run={run.id}">run {run.id}</a></div>'


def _numbers(cell: CellRows | None) -> Any:
    numbers = [str(number + 1) for number in prompts(cell)] if cell else []
    return gr.update(choices=numbers, value=next(iter(numbers), None))
