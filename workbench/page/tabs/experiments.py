"""The tab for experiments: choose or upload a plan, run it, watch it, stop, resume, take its files."""

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import plan_file
from workbench.experiments.background import PUBLIC_PROMPTS, Background
from workbench.experiments.files import WRITERS
from workbench.experiments.journal import Journal
from workbench.experiments.report import report
from workbench.experiments.request import Request
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.advice import AdviceCard
from workbench.page.parts.experiment_view import ExperimentView
from workbench.page.widgets.handlers import QUIET

OWN = "own"
FILES = ("html", "md", "csv")
NONE_YET = "None yet: run a plan."
MOST_PAST = 50  # experiments to choose from
INTRODUCTION = (
    "A plan runs decoders over many prompts and settings, and keeps every answer as soon as it is there: stop it, close the page, "
    "resume later; finished work is never done twice. Speeds come with 95% intervals over prompts, beside what the papers printed."
)
PUBLIC = f"On a shared machine the project's plans run with {PUBLIC_PROMPTS} prompts each."


class ExperimentsTab:
    id = "experiments"

    def __init__(self, host: Host, pair: gr.State):
        self.host, self.pair, self.public = host, pair, host.limits.public
        self.journal = Journal(host.store.path.with_name("experiments.sqlite"))
        self.background = Background(host.device, self.journal, host.limits)
        with gr.Tab("Experiments", id=self.id, elem_id="experiments") as self.tab:
            gr.Markdown(f"{INTRODUCTION} {PUBLIC}" if self.public else INTRODUCTION, elem_classes="wb-note")
            with gr.Row():
                self._lay_out_plan()
                self._lay_out_options()
            self.note = gr.HTML(elem_id="experiment-note", elem_classes="wb-note")
            self._lay_out_past()
            self.view = ExperimentView(self.journal, self.background)
            AdviceCard(host, pair)
            self.timer = gr.Timer(2.0, active=False)  # asks how far it is, while one runs
        self._wire()

    def _lay_out_plan(self) -> None:
        plans = [(f"{name}: {plan_file.find(name).title}", name) for name in plan_file.shipped()]
        own = [] if self.public else [("A plan of yours", OWN)]
        with gr.Column(min_width=320):
            self.plan = gr.Dropdown([*plans, *own], value="stories", label="Plan", elem_id="experiment-plan")
            self.file = gr.File(
                label="A plan (.toml)", file_types=[".toml"], visible=False, height=120, elem_id="experiment-file"
            )
            self.about = gr.HTML(self._about("stories", ""), elem_id="experiment-about", elem_classes="wb-note")

    def _lay_out_options(self) -> None:
        with gr.Column(min_width=320):
            with gr.Row():
                self.limit = gr.Number(
                    PUBLIC_PROMPTS if self.public else 5, label="Prompts of each set at most", precision=0, minimum=1,
                    elem_id="experiment-limit", min_width=160,
                )  # fmt: skip
                self.here = gr.Checkbox(
                    True, label="with the pair that Compare has loaded", info="otherwise with the plan's own pairs",
                    interactive=not self.public, elem_id="experiment-here", min_width=200,
                )  # fmt: skip
            with gr.Row():
                self.run = gr.Button("Run the plan", variant="primary", elem_id="experiment-run")
                self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="experiment-stop")

    def _lay_out_past(self) -> None:
        with gr.Row():
            self.past = gr.Dropdown(
                [],
                value=None,
                label="Experiments that were run",
                info=NONE_YET,
                elem_id="experiment-past",
                scale=3,
                visible=not self.public,
            )
            self.resume = gr.Button("Resume", elem_id="experiment-resume", visible=False, min_width=120)
            self.make = gr.Button("Make files", elem_id="experiment-make", visible=False, min_width=120)
        self.files = gr.File(
            visible=False, label="The report's files", file_count="multiple", elem_id="experiment-files"
        )

    def _wire(self) -> None:
        self.plan.change(lambda name: gr.update(visible=name == OWN), self.plan, self.file, **QUIET)
        chosen = [self.plan.change, self.file.upload, self.file.clear]
        gr.on(chosen, self._about, [self.plan, self.file], self.about, **QUIET)
        state = [self.past, self.view.shown]
        drawn = [self.past, self.stop, self.resume, self.make, self.timer, *self.view.outputs]
        gr.on([self.tab.select, self.timer.tick, self.past.input], self._refresh, state, drawn, **QUIET)
        asked = [self.plan, self.file, self.limit, self.here, self.pair]
        self.run.click(self._run, asked, self.note, **QUIET).then(self._refresh_running, None, drawn, **QUIET)
        self.resume.click(self._resume, self.past, self.note, **QUIET).then(self._refresh, state, drawn, **QUIET)
        self.stop.click(self._stop, self.past, self.note, **QUIET).then(self._refresh, state, drawn, **QUIET)
        self.make.click(self._make, self.past, [self.files, self.note], **QUIET)

    # ---- what is asked

    def _plan(self, plan: str | None, file: str | None) -> plan_file.Plan:
        if plan and plan != OWN:
            return plan_file.find(plan)
        if not plan or not file or self.public:
            raise InputError("No plan is chosen; choose a .toml file, or a plan of the project.")
        return plan_file.read(file)

    def _about(self, plan: str | None, file: str | None) -> str:
        try:
            found = self._plan(plan, file) if plan and (plan != OWN or file) else None
        except InputError as error:
            return words.note(str(error), "alert")
        return words.note(" ".join(found.about.split())) if found else ""

    def _run(
        self, plan: str | None, file: str | None, limit: float | None, here: bool, pair: PairChoice, visit: gr.Request
    ) -> str:
        try:
            if limit is not None and limit < 1:
                raise InputError("The number of prompts must be at least 1.")
            found = self._plan(plan, file)
            most = None if limit is None else int(limit)
            asked = Request(found.source, f"{found.name}.toml", pair if here else None, most, paths=False)
            self.background.start(asked, visit.session_hash)
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _resume(self, id: str | None, visit: gr.Request) -> str:
        try:
            asked = Request.from_json(self.journal.experiment(id or "")["request"])
            self.background.start(asked, visit.session_hash)
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
        """The files in a folder of their own, which is the visitor's to download."""
        try:
            found = report(self.journal, id or "")
        except InputError as error:
            return gr.update(visible=False), words.note(str(error), "alert")
        folder, paths = Path(tempfile.mkdtemp(prefix="experiment-")), []
        for kind in FILES:
            for name, text in WRITERS[kind](found).items():
                paths.append(str(folder / name))
                (folder / name).write_text(text, encoding="utf-8")
        return gr.update(value=paths, visible=True), ""

    # ---- what is shown

    def _refresh_running(self) -> list[Any]:
        """After Run: the experiment that runs here, once its id is known."""
        return self._refresh(None, None)

    def _refresh(self, id: str | None, shown: tuple[str, int, float] | None) -> list[Any]:
        try:
            return self._drawn(id, shown)
        except InputError as error:
            return [*[gr.skip()] * 5, words.note(str(error), "alert"), gr.skip(), gr.skip()]

    def _drawn(self, id: str | None, shown: tuple[str, int, float] | None) -> list[Any]:
        """Everybody sees what runs here; on their own machine also what ran before."""
        work, busy = self.background.work, self.background.running
        past = self.journal.experiments(1 if self.public else MOST_PAST)
        if work and (self.public or (id is None and busy)):
            id = work.id
        elif past and (self.public or id is None):
            id = past[0].id
        now = self.view.now(id)
        if self.public and now:
            past = [now]
        choices = [(f"{p.title} · {words.when(p.created)} · {p.done}/{p.total} · {p.id}", p.id) for p in past]
        running = busy or bool(now and now.running)
        buttons = (running, bool(now and now.done < now.total and not running), bool(now and now.done))
        info = None if past else NONE_YET
        head = [
            gr.update(choices=choices, value=now and now.id, info=info),
            *(gr.update(visible=seen) for seen in buttons),
        ]
        return [*head, gr.Timer(active=running), *self.view.drawn(now, shown)]
