"""The tab for experiments: choose a plan, run, watch, stop and resume it, make files."""

import base64
import html
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import plan as plans
from workbench.experiments.driver import ON_YOUR_OWN, Background
from workbench.experiments.journal import ExperimentProgress, Journal
from workbench.experiments.report import WRITERS, as_html, orderings_html, report, sections, shipped
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.frame import plot
from workbench.page.host import Host
from workbench.page.widgets import QUIET, room
from workbench.studies.settings import seconds_left

# Between two drawings of a running experiment; drawing takes time from the timed decoders.
REDRAW_SECONDS = 10.0
NONE_YET = "None yet: run a plan."
INTRODUCTION = (
    "One prompt is an anecdote. A plan runs decoders over many prompts and settings, and says "
    "whether what the papers found is found here too."
)
RUNS_HERE = (
    "Press **Run the plan** to measure it here. What is finished is kept: stop, and resume later. "
    "Plans of your own begin in the terminal, and stand here among the past experiments."
)
Shown = list[Any]  # an experiment, its items done, and when it was drawn


def noting(handler: Callable[..., str | None]) -> Callable[..., str]:
    """The handler, whose answer or fault is the note below the plan."""

    @wraps(handler)
    def answer(*values: Any) -> str:
        try:
            return handler(*values) or ""
        except InputError as error:
            return words.note(str(error), "alert")

    return answer


def _about(plan: str | None) -> str:
    return words.note(" ".join(plans.find(plan).about.split())) if plan else ""


class ExperimentsTab:
    """The tab.

    Args:
        host: the page's host
        pair: the pair that is loaded
    """

    id, in_lab = "experiments", True

    def __init__(self, host: Host, pair: gr.State):
        self.journal = Journal(host.store.path.with_name("experiments.sqlite"))
        self.background = Background(host.device, self.journal, host.limits)
        with room("Experiments", self.id, "experiments", in_lab=True) as self.tab:
            runs = ON_YOUR_OWN if host.limits.public else RUNS_HERE
            gr.Markdown(f"{INTRODUCTION} {runs}", elem_classes="wb-note")
            if orderings := shipped():
                gr.HTML(
                    orderings_html(orderings),
                    elem_id="experiment-orderings",
                    elem_classes="wb-note",
                )
            if not host.limits.public:
                self._lay_out()
                self._wire(pair)

    def _lay_out(self) -> None:
        every = {name: plans.find(name) for name in plans.shipped()}
        with gr.Row():
            with gr.Column(min_width=320):
                self.plan = gr.Dropdown(
                    [(f"{name}: {plan.title}", name) for name, plan in every.items()],
                    value="stories", label="Plan", elem_id="experiment-plan",
                )  # fmt: skip
                self.about = gr.HTML(
                    _about("stories"), elem_id="experiment-about", elem_classes="wb-note"
                )
            with gr.Column(min_width=320):
                with gr.Row():
                    self.limit = gr.Number(
                        5, label="Prompts of each set at most", precision=0, minimum=1,
                        elem_id="experiment-limit", min_width=160,
                    )  # fmt: skip
                    self.here = gr.Checkbox(
                        True, label="with the pair loaded in the Compare tab",
                        info="otherwise with the plan's own pairs",
                        elem_id="experiment-here", min_width=200,
                    )  # fmt: skip
                with gr.Row():
                    self.run = gr.Button(
                        "Run the plan", variant="primary", elem_id="experiment-run"
                    )
                    self.stop = gr.Button(
                        "Stop", variant="stop", visible=False, elem_id="experiment-stop"
                    )
        self.note = gr.HTML(elem_id="experiment-note", elem_classes="wb-note")
        with gr.Row():
            self.past = gr.Dropdown(
                [], value=None, label="Past experiments", info=NONE_YET,
                elem_id="experiment-past", scale=3,
            )  # fmt: skip
            self.resume = gr.Button(
                "Resume", elem_id="experiment-resume", visible=False, min_width=120
            )
            self.make = gr.Button(
                "Make files", elem_id="experiment-make", visible=False, min_width=120
            )
        self.progress = gr.HTML(elem_id="experiment-progress", elem_classes="wb-note")
        self.shown = gr.JSON(visible="hidden")  # so that nothing is drawn twice
        with gr.Column(elem_id="experiment-report", elem_classes="wb-note wb-experiment"):
            gr.render(self.shown, [self.shown.change], queue=False, show_progress="hidden")(
                self._report
            )
        self.timer = gr.Timer(2.0, active=False)  # polls the progress while one runs

    def _wire(self, pair: gr.State) -> None:
        self.plan.change(_about, self.plan, self.about, **QUIET)
        state = [self.past, self.shown]
        outputs = [
            self.past, self.stop, self.resume, self.make, self.timer,
            self.progress, self.shown,
        ]  # fmt: skip
        gr.on(
            [self.tab.select, self.timer.tick, self.past.input],
            self._refresh,
            state,
            outputs,
            **QUIET,
        )
        # After Run: the experiment that runs here, once its id is known.
        self.run.click(
            self._run, [self.plan, self.limit, self.here, pair], self.note, **QUIET
        ).then(lambda: self._refresh(None, None), None, outputs, **QUIET)
        for button, handler in ((self.resume, self._resume), (self.stop, self._stop)):
            button.click(handler, self.past, self.note, **QUIET).then(
                self._refresh, state, outputs, **QUIET
            )
        self.make.click(self._make, self.past, self.note, **QUIET)

    # ---- requests

    @noting
    def _run(self, plan: str | None, limit: float | None, here: bool, pair: PairChoice) -> None:
        if limit is not None and limit < 1:
            raise InputError("The number of prompts must be at least 1.")
        source = plans.find(plan or "").source
        most, choice = None if limit is None else int(limit), pair if here else None
        self.background.start(plans.ExperimentRequest(source, f"{plan}.toml", choice, most))

    @noting
    def _resume(self, id: str | None) -> None:
        request, _ = self.journal.experiment(id or "")
        self.background.start(request)

    @noting
    def _stop(self, id: str | None) -> None:
        self.background.stop()
        if id:
            self.journal.ask_to_stop(id)  # another process may run it

    @noting
    def _make(self, id: str | None) -> str:
        whole = report(self.journal, id or "")
        links = []
        for kind, write in WRITERS.items():
            file = base64.b64encode(write(whole).encode(errors="backslashreplace")).decode()
            links.append(
                f'<a class="button" download="{html.escape(whole.name)}.{kind}" '
                f'href="data:;base64,{file}">{kind.upper()}</a>'
            )
        return f'<div class="kept"><span>Download {"".join(links)}</span></div>'

    # ---- updates

    def _refresh(self, id: str | None, shown: Shown | None) -> list[Any]:
        try:
            past = self.journal.experiments()
        except InputError as error:
            return [*[gr.skip()] * 5, words.note(str(error), "alert"), gr.skip()]
        busy = self.background.running
        if id is None and busy:
            id = self.background.id
        elif id is None and past:
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
            self._next(now, shown),
        ]

    def _says(self, now: ExperimentProgress | None) -> str:
        here, says = self.background, self.background.says(now)
        if now and now.running and now.eta is not None:
            says += f" · about {seconds_left(now.eta)} left"
        parts = [words.note(says)] if says else []
        if now:
            parts.append(words.bar(now.done / max(1, now.total)))
        # The fault of an experiment that never began is shown with any other.
        if here.fault and here.id in (None, now and now.id):
            parts.append(words.note(f"{here.title}: {here.fault}", "alert"))
        return "".join(parts)

    def _next(self, now: ExperimentProgress | None, shown: Shown | None) -> Any:
        """What the report is to show; the same while nothing is new or it was just drawn."""
        if now is None:
            return None
        if shown is not None and shown[0] == now.id:
            waits = shown[1] and now.running and time.monotonic() - shown[2] < REDRAW_SECONDS
            if waits or shown[1] == now.done:
                return gr.skip()
        return [now.id, now.done, time.monotonic()]

    def _report(self, shown: Shown | None) -> None:
        if shown is None:
            return
        try:
            parts = sections(report(self.journal, shown[0]))
        except InputError as error:  # the plan names a decoder that is gone
            gr.HTML(words.note(str(error), "alert"))
            return
        for i, section in enumerate(parts):
            # By its key a part keeps its place on the page when it is drawn anew.
            text = f"<h3>{html.escape(section.title)}</h3>{as_html(section)}"
            gr.HTML(text, key=i, preserved_by_key=[])
            with gr.Row():
                for j, chart in enumerate(section.charts):
                    with gr.Column(min_width=340):
                        plot(value=chart, elem_classes="chart", key=(i, j), preserved_by_key=[])


def _named(past: ExperimentProgress) -> str:
    state = "running" if past.running else "unfinished" if past.done < past.total else ""
    return " · ".join(filter(None, (past.title, words.when(past.created), state, past.id)))


TAB = ExperimentsTab
