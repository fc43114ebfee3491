"""The tab for experiments: choose or upload a plan, run, watch, stop and resume it, make files."""

import html
import tempfile
import time
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import plan as plans
from workbench.experiments.driver import PUBLIC_PROMPTS, Background
from workbench.experiments.files import WRITERS, orderings_html, shipped
from workbench.experiments.journal import ExperimentProgress, Journal
from workbench.experiments.report import as_html, report, sections
from workbench.kinds.advice.form import AdviceCard
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.host import Host
from workbench.page.widgets import QUIET, READ_ONCE, Given, given, room

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


NONE_YET = "None yet: run a plan."
MOST_PAST = 50  # experiments to choose from
INTRODUCTION = (
    "One prompt is an anecdote. A plan runs decoders over many prompts and settings, and says "
    "whether what the papers found is found here too. What is finished is kept: stop, and resume "
    "later."
)
PUBLIC = (
    f"On a shared machine only the project's plans run, with {PUBLIC_PROMPTS} prompts of each set."
)


class ExperimentsTab:
    """The tab.

    Args:
        host: the page's host
        pair: the pair that is loaded
    """

    id, in_lab = "experiments", True

    def __init__(self, host: Host, pair: gr.State):
        self.host, self.pair, self.public = host, pair, host.limits.public
        self.journal = Journal(host.store.path.with_name("experiments.sqlite"))
        self.background = Background(host.device, self.journal, host.limits)
        with room("Experiments", self.id, "experiments", in_lab=True) as self.tab:
            gr.Markdown(
                f"{INTRODUCTION} {PUBLIC}" if self.public else INTRODUCTION, elem_classes="wb-note"
            )
            if orderings := shipped():
                gr.HTML(
                    orderings_html(orderings),
                    elem_id="experiment-orderings",
                    elem_classes="wb-note",
                )
            with gr.Row():
                self.plan = PlanFields(self.public)
                self._lay_out_options()
            self.note = gr.HTML(elem_id="experiment-note", elem_classes="wb-note")
            self._lay_out_past()
            self.progress = gr.HTML(elem_id="experiment-progress", elem_classes="wb-note")
            self.report = gr.HTML(elem_id="experiment-report", elem_classes="wb-note wb-experiment")
            # (experiment, items done, time) of the last drawing, so that nothing is drawn twice.
            self.shown = gr.State(None)
            self.cards = [AdviceCard(host, pair)]
            self.timer = gr.Timer(2.0, active=False)  # polls the progress while one runs
        self._wire()

    def _lay_out_options(self) -> None:
        with gr.Column(min_width=320):
            with gr.Row():
                self.limit = gr.Number(
                    PUBLIC_PROMPTS if self.public else 5, label="Prompts of each set at most",
                    precision=0, minimum=1, elem_id="experiment-limit", min_width=160,
                )  # fmt: skip
                self.here = gr.Checkbox(
                    True, label="with the pair loaded in the Compare tab",
                    info="otherwise with the plan's own pairs", interactive=not self.public,
                    elem_id="experiment-here", min_width=200,
                )  # fmt: skip
            with gr.Row():
                self.run = gr.Button("Run the plan", variant="primary", elem_id="experiment-run")
                self.stop = gr.Button(
                    "Stop", variant="stop", visible=False, elem_id="experiment-stop"
                )

    def _lay_out_past(self) -> None:
        with gr.Row():
            self.past = gr.Dropdown(
                [], value=None, label="Past experiments", info=NONE_YET,
                elem_id="experiment-past", scale=3, visible=not self.public,
            )  # fmt: skip
            self.resume = gr.Button(
                "Resume", elem_id="experiment-resume", visible=False, min_width=120
            )
            self.make = gr.Button(
                "Make files", elem_id="experiment-make", visible=False, min_width=120
            )
        self.files = gr.File(
            visible=False, label="The report's files", file_count="multiple",
            elem_id="experiment-files",
        )  # fmt: skip

    def _wire(self) -> None:
        self.plan.wire()
        state = [self.past, self.shown]
        outputs = [
            self.past, self.stop, self.resume, self.make, self.timer,
            self.progress, self.report, self.shown,
        ]  # fmt: skip
        gr.on(
            [self.tab.select, self.timer.tick, self.past.input],
            self._refresh,
            state,
            outputs,
            **QUIET,
        )
        inputs = [*self.plan.chosen, self.limit, self.here, self.pair]
        # After Run: the experiment that runs here, once its id is known.
        self.run.click(self._run, inputs, self.note, **QUIET).then(
            lambda: self._refresh(None, None), None, outputs, **QUIET
        )
        for button, handler in ((self.resume, self._resume), (self.stop, self._stop)):
            button.click(handler, self.past, self.note, **QUIET).then(
                self._refresh, state, outputs, **QUIET
            )
        self.make.click(self._make, self.past, [self.files, self.note], **QUIET)

    # ---- requests

    def _run(
        self,
        plan: str | None,
        file: Given | None,
        limit: float | None,
        here: bool,
        pair: PairChoice,
        visit: gr.Request,
    ) -> str:
        try:
            if limit is not None and limit < 1:
                raise InputError("The number of prompts must be at least 1.")
            chosen = self.plan.read(plan, file)
            most, choice = None if limit is None else int(limit), pair if here else None
            self.background.start(
                plans.ExperimentRequest(
                    chosen.source, f"{chosen.name}.toml", choice, most, paths=False
                ),
                visit.session_hash,
            )
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _resume(self, id: str | None, visit: gr.Request) -> str:
        try:
            self.background.start(self.journal.experiment(id or "").request, visit.session_hash)
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _stop(self, id: str | None, visit: gr.Request) -> str:
        try:
            self.background.stop(visit.session_hash)
            if id and not self.public:
                self.journal.ask_to_stop(id)  # another process may run it
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _make(self, id: str | None) -> tuple[Any, str]:
        """Write the files for the visitor to download, in a new folder of Gradio's cache.

        Gradio deletes them after an hour.
        """
        try:
            whole = report(self.journal, id or "")
        except InputError as error:
            return gr.update(visible=False), words.note(str(error), "alert")
        cache, paths = Path(self.files.GRADIO_CACHE), list[str]()
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="experiment-", dir=cache))
        for kind, write in WRITERS.items():
            paths.append(str(folder / f"{whole.name}.{kind}"))
            Path(paths[-1]).write_bytes(write(whole).encode(errors="backslashreplace"))
        return gr.update(value=paths, visible=True), ""

    # ---- updates

    def _refresh(self, id: str | None, shown: tuple[str, int, float] | None) -> list[Any]:
        """Everyone sees the experiment that runs here; only on their own machine also past ones."""
        try:
            past = self.journal.experiments(1 if self.public else MOST_PAST)
        except InputError as error:
            return [*[gr.skip()] * 5, words.note(str(error), "alert"), gr.skip(), gr.skip()]
        work, busy = self.background.work, self.background.running
        if work and (self.public or (id is None and busy)):
            id = work.id
        elif past and (self.public or id is None):
            id = past[0].id
        try:
            now = self.journal.progress(id) if id else None
        except InputError:  # it is still loading, and so not in the journal
            now = None
        listed = {p.id: p for p in past} | ({now.id: now} if now else {})
        running = busy or bool(now and now.running)
        left = bool(now and now.done < now.total and not running)
        return [
            # None for the info would leave the present text.
            gr.update(
                choices=[(_named(p), p.id) for p in listed.values()],
                value=now and now.id,
                info="" if past else NONE_YET,
            ),
            *(gr.update(visible=visible) for visible in (running, left, bool(now and now.done))),
            gr.Timer(active=running),
            self._says(now),
            *self._report(now, shown),
        ]

    def _says(self, now: ExperimentProgress | None) -> str:
        work, says = self.background.work, self.background.says(now)
        if now and now.running and now.eta is not None:
            says += f" · about {words.seconds_left(now.eta)} left"
        parts = [words.note(says)] if says else []
        if now:
            parts.append(words.bar(now.done / max(1, now.total)))
        # The fault of an experiment that never began is shown with any other.
        if work and work.fault and work.id in (None, now and now.id):
            parts.append(words.note(f"{work.title}: {work.fault}", "alert"))
        return "".join(parts)

    def _report(
        self, now: ExperimentProgress | None, shown: tuple[str, int, float] | None
    ) -> list[Any]:
        """The report, and what is shown now; nothing new while it is the same or was just drawn."""
        if now is None:
            return ["", None]
        if shown is not None and shown[0] == now.id:
            waits = now.running and time.monotonic() - shown[2] < REDRAW_SECONDS
            if waits or shown[1] == now.done:
                return [gr.skip(), gr.skip()]
        try:
            whole = report(self.journal, now.id)
        except InputError as error:  # the plan names a decoder that is gone
            return [words.note(str(error), "alert"), None]
        parts = [f"<h3>{html.escape(s.title)}</h3>{as_html(s)}" for s in sections(whole)]
        return ["".join(parts), (now.id, whole.progress.done, time.monotonic())]


def _named(past: ExperimentProgress) -> str:
    state = "running" if past.running else "unfinished" if past.done < past.total else ""
    return " · ".join(filter(None, (past.title, words.when(past.created), state, past.id)))


TAB = ExperimentsTab
