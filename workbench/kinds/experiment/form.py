"""The tab for experiments: choose or upload a plan, run, watch, stop and resume it, make files."""

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments.driver import PUBLIC_PROMPTS, Background
from workbench.experiments.files import WRITERS, orderings_html, shipped
from workbench.experiments.journal import ExperimentProgress, Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.report import report
from workbench.kinds.advice.form import AdviceCard
from workbench.kinds.experiment.parts import ExperimentView, Opener, PlanFields
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import QUIET, Given

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
        with gr.Tab("Experiments", id=self.id, elem_id="experiments") as self.tab:
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
            self.view = ExperimentView(self.journal, self.background)
            self.opener = Opener(host, self.journal)
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
        state = [self.past, self.view.shown]
        drawn = [self.past, self.stop, self.resume, self.make, self.timer, *self.view.outputs]
        gr.on(
            [self.tab.select, self.timer.tick, self.past.input],
            self._refresh,
            state,
            drawn,
            **QUIET,
        )
        asked = [*self.plan.chosen, self.limit, self.here, self.pair]
        # After Run: the experiment that runs here, once its id is known.
        self.run.click(self._run, asked, self.note, **QUIET).then(
            lambda: self._refresh(None, None), None, drawn, **QUIET
        )
        for button, handler in ((self.resume, self._resume), (self.stop, self._stop)):
            button.click(handler, self.past, self.note, **QUIET).then(
                self._refresh, state, drawn, **QUIET
            )
        self.make.click(self._make, self.past, [self.files, self.note], **QUIET)
        self.opener.wire(self.past)

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
            found = self.plan.read(plan, file)
            most, choice = None if limit is None else int(limit), pair if here else None
            self.background.start(
                ExperimentRequest(found.source, f"{found.name}.toml", choice, most, paths=False),
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
            found = report(self.journal, id or "")
        except InputError as error:
            return gr.update(visible=False), words.note(str(error), "alert")
        cache, paths = Path(self.files.GRADIO_CACHE), list[str]()
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="experiment-", dir=cache))
        for kind in ("html", "md", "csv"):
            for name, text in WRITERS[kind](found).items():
                paths.append(str(folder / name))
                (folder / name).write_bytes(text.encode(errors="backslashreplace"))
        return gr.update(value=paths, visible=True), ""

    # ---- updates

    def _refresh(self, id: str | None, shown: tuple[str, int, float] | None) -> list[Any]:
        try:
            return self._drawn(id, shown)
        except InputError as error:
            return [*[gr.skip()] * 5, words.note(str(error), "alert"), gr.skip(), gr.skip()]

    def _drawn(self, id: str | None, shown: tuple[str, int, float] | None) -> list[Any]:
        """Everyone sees the experiment that runs here; only on their own machine also past ones."""
        work, busy = self.background.work, self.background.running
        past = self.journal.experiments(1 if self.public else MOST_PAST)
        if work and (self.public or (id is None and busy)):
            id = work.id
        elif past and (self.public or id is None):
            id = past[0].id
        now, view = self.view.draw(id, shown)
        past = [now if now and p.id == now.id else p for p in past]
        if self.public and now:
            past = [now]
        running = busy or bool(now and now.running)
        left = bool(now and now.done < now.total and not running)
        return [
            # None for the info would leave the present text.
            gr.update(
                choices=[(_named(p), p.id) for p in past],
                value=now and now.id,
                info="" if past else NONE_YET,
            ),
            *(gr.update(visible=seen) for seen in (running, left, bool(now and now.done))),
            gr.Timer(active=running),
            *view,
        ]


def _named(past: ExperimentProgress) -> str:
    """A line of the list; the progress of the chosen one stands below it."""
    state = "running" if past.running else "unfinished" if past.done < past.total else ""
    return " · ".join(filter(None, (past.title, words.when(past.created), state, past.id)))


TAB = ExperimentsTab
