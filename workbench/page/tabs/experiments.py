"""The tab for experiments: choose or upload a plan, watch its cells fill in, stop, resume, read its tables and figures."""

import html
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import advice, driver, plan_file
from workbench.experiments.advisor import MOST_PROMPTS, Advice, advise
from workbench.experiments.background import PUBLIC_PROMPTS, Background
from workbench.experiments.charts import draw
from workbench.experiments.files import WRITERS, sections
from workbench.experiments.journal import Journal, Progress
from workbench.experiments.report import Report, report
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import DEVICE, QUIET
from workbench.show import tables
from workbench.show.tables import Table
from workbench.studies import prompts
from workbench.studies.settings import Settings

OWN = "own"
MOST_FIGURES = 12
INTRODUCTION = (
    "A plan runs decoders over many prompts and settings, and keeps every answer as soon as it is there: stop it, close the page, "
    "resume later; finished work is never done twice. Speeds come with 95% intervals over prompts, beside what the papers printed."
)
PUBLIC = f"On a shared machine the project's plans run with {PUBLIC_PROMPTS} prompts each."
ADVICE = "Whether speculative decoding pays with this pair on this machine: predicted from acceptance and costs, beside what is measured."


class ExperimentsTab:
    id = "experiments"

    def __init__(self, host: Host, pair: gr.State):
        self.host, self.pair = host, pair
        self.journal = Journal(host.store.path.with_name("experiments.sqlite"))
        self.background = Background(host.device, self.journal, host.limits)
        with gr.Tab("Experiments", id=self.id, elem_id="experiments") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        public = self.host.limits.public
        gr.Markdown(f"{INTRODUCTION} {PUBLIC}" if public else INTRODUCTION, elem_classes="wb-note")
        plans = [(f"{name}: {plan_file.find(name).title}", name) for name in plan_file.shipped()]
        with gr.Row():
            with gr.Column(min_width=320):
                own = [] if public else [("A plan of yours", OWN)]
                self.plan = gr.Dropdown([*plans, *own], value="stories", label="Plan", elem_id="experiment-plan")
                self.file = gr.File(
                    label="A plan (.toml)", file_types=[".toml"], visible=False, height=120, elem_id="experiment-file"
                )
                self.about = gr.HTML(self._about("stories", ""), elem_id="experiment-about", elem_classes="wb-note")
            with gr.Column(min_width=320):
                with gr.Row():
                    self.limit = gr.Number(
                        PUBLIC_PROMPTS if public else 5, label="Prompts of each set at most", precision=0, minimum=1,
                        elem_id="experiment-limit", min_width=160,
                    )  # fmt: skip
                    self.here = gr.Checkbox(
                        True, label="with the pair that Compare has loaded", info="otherwise with the plan's own pairs",
                        interactive=not public, elem_id="experiment-here", min_width=200,
                    )  # fmt: skip
                with gr.Row():
                    self.run = gr.Button("Run the plan", variant="primary", elem_id="experiment-run")
                    self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="experiment-stop")
        self.note = gr.HTML(elem_id="experiment-note", elem_classes="wb-note")
        with gr.Row():
            self.past = gr.Dropdown(
                [], value=None, label="Experiments", elem_id="experiment-past", scale=3, visible=not public
            )
            self.resume = gr.Button("Resume", elem_id="experiment-resume", visible=False, min_width=120)
            self.make = gr.Button("Make files", elem_id="experiment-make", visible=False, min_width=120)
        self.files = gr.File(
            visible=False, label="The report's files", file_count="multiple", elem_id="experiment-files"
        )
        self.progress = gr.HTML(elem_id="experiment-progress", elem_classes="wb-note")
        self.tables = gr.HTML(elem_id="experiment-tables", elem_classes="wb-note")
        self.plots = []
        for start in range(0, MOST_FIGURES, 2):
            with gr.Row():
                for i in (start, start + 1):
                    with gr.Column(min_width=320):
                        self.plots.append(
                            gr.Plot(
                                show_label=False,
                                container=False,
                                visible=False,
                                elem_classes="chart",
                                elem_id=f"experiment-figure-{i}",
                            )
                        )
        with gr.Accordion("Will it pay?", open=False, elem_id="experiment-advice"):
            gr.Markdown(ADVICE, elem_classes="wb-note")
            with gr.Row():
                self.temperature = gr.Number(
                    1.0, label="Temperature", minimum=0, maximum=100, min_width=140, elem_id="advice-temperature"
                )
                self.count = gr.Number(
                    5,
                    label="Prompts",
                    precision=0,
                    minimum=1,
                    maximum=MOST_PROMPTS,
                    min_width=140,
                    elem_id="advice-count",
                )
                self.ask = gr.Button("Ask", elem_id="advice-ask", min_width=140)
            self.answer = gr.HTML(elem_id="advice-answer", elem_classes="wb-note")
        self.shown = gr.State((None, -1))  # which experiment's tables are shown, after how many items
        self.timer = gr.Timer(2.0, active=False)  # asks how far it is, while one runs

    def _wire(self) -> None:
        self.plan.change(lambda name: gr.update(visible=name == OWN), self.plan, self.file, **QUIET)
        gr.on(
            [self.plan.change, self.file.upload, self.file.clear],
            self._about,
            [self.plan, self.file],
            self.about,
            **QUIET,
        )
        state = [self.past, self.shown]
        drawn = [
            self.past,
            self.shown,
            self.progress,
            self.stop,
            self.resume,
            self.make,
            self.timer,
            self.tables,
            *self.plots,
        ]
        asked = [self.plan, self.file, self.limit, self.here, self.pair]
        self.tab.select(self._refresh, state, drawn, **QUIET)
        self.timer.tick(self._refresh, state, drawn, **QUIET)
        self.past.input(self._refresh, state, drawn, **QUIET)
        self.run.click(self._run, asked, self.note, **QUIET).then(self._refresh_running, state, drawn, **QUIET)
        self.resume.click(self._resume, self.past, self.note, **QUIET).then(self._refresh, state, drawn, **QUIET)
        self.stop.click(self._stop, self.past, self.note, **QUIET).then(self._refresh, state, drawn, **QUIET)
        self.make.click(self._make, self.past, [self.files, self.note], **QUIET)
        self.ask.click(
            self._advise, [self.temperature, self.count, self.pair], self.answer, show_progress_on=self.answer, **DEVICE
        )

    # ---- what is asked

    def _request(
        self, plan: str | None, file: str | None, limit: float | None, here: bool, pair: PairChoice
    ) -> driver.Request:
        if limit is not None and limit < 1:
            raise InputError("The number of prompts must be at least 1.")
        found = self._plan(plan, file)
        return driver.Request(
            found.source, f"{found.name}.toml", pair if here else None, int(limit) if limit else None, paths=False
        )

    def _plan(self, plan: str | None, file: str | None) -> plan_file.Plan:
        if plan and plan != OWN:
            return plan_file.find(plan)
        if not plan or not file or self.host.limits.public:
            raise InputError("No plan is chosen; choose a .toml file, or a plan of the project.")
        return plan_file.read(file)

    def _about(self, plan: str | None, file: str | None) -> str:
        try:
            found = self._plan(plan, file) if plan and (plan != OWN or file) else None
        except InputError as error:
            return words.note(str(error), "alert")
        return words.note(" ".join(found.about.split())) if found else ""

    def _run(
        self, plan: str | None, file: str | None, limit: float | None, here: bool, pair: PairChoice, request: gr.Request
    ) -> str:
        try:
            self.background.start(self._request(plan, file, limit, here, pair), request.session_hash)
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _resume(self, id: str | None, request: gr.Request) -> str:
        try:
            self.background.start(
                driver.Request.from_json(self.journal.experiment(id or "")["request"]), request.session_hash
            )
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    def _stop(self, id: str | None, request: gr.Request) -> str:
        try:
            self.background.stop(request.session_hash)
            if id and not self.host.limits.public:
                self.journal.ask_to_stop(id)  # another process may run it
        except InputError as error:
            return words.note(str(error), "alert")
        return ""

    # ---- what is shown

    def _refresh_running(self, id: str | None, shown: tuple[str | None, int]) -> list[Any]:
        """After Run: the experiment that runs here, once its id is known."""
        return self._refresh(None, shown)

    def _refresh(self, id: str | None, shown: tuple[str | None, int]) -> list[Any]:
        try:
            return self._drawn(id, shown)
        except InputError as error:
            kept = [gr.skip(), gr.skip(), words.note(str(error), "alert")]
            return [*kept, *[gr.skip()] * (5 + len(self.plots))]

    def _drawn(self, id: str | None, shown: tuple[str | None, int]) -> list[Any]:
        work, public = self.background.work, self.host.limits.public
        past = [] if public else self.journal.experiments()
        starting = self.background.running and work is not None and work.id is None
        id = (work.id if work and (self.background.running or public) else None) if id is None or public else id
        if id is None and past and not starting:
            id = past[0].id
        now = self.journal.progress(id) if id and self._is_known(id) else None
        choices = [(f"{p.title} · {words.when(p.created)} · {p.done}/{p.total} · {p.id}", p.id) for p in past]
        running = self.background.running or bool(now and now.running)
        head = [
            gr.update(choices=choices, value=now and now.id), (id, now.done if now else -1), self._progress(now, starting),
            gr.update(visible=running), gr.update(visible=bool(now and now.done < now.total and not running)),
            gr.update(visible=bool(now and now.done)), gr.Timer(active=running),
        ]  # fmt: skip
        if now is None:
            return [*head, "", *[gr.update(visible=False)] * len(self.plots)]
        if shown is not None and tuple(shown) == (id, now.done):
            return [*head, *[gr.skip()] * (1 + len(self.plots))]
        found = report(self.journal, now.id)
        return [*head, _content(found), *self._figures(found)]

    def _is_known(self, id: str) -> bool:
        """An experiment that has only begun to load is not in the journal yet."""
        try:
            self.journal.progress(id)
        except InputError:
            return False
        return True

    def _progress(self, now: Progress | None, starting: bool) -> str:
        fault = (
            words.note(self.background.work.fault, "alert")
            if self.background.work and self.background.work.fault
            else ""
        )
        if now is None:
            return words.note(self.background.says(None)) + fault if starting else fault
        left = f" · about {words.seconds_left(now.eta)} left" if now.running and now.eta is not None else ""
        return words.note(self.background.says(now) + left) + words.bar(now.done / max(1, now.total)) + fault

    def _figures(self, found: Report) -> list[Any]:
        drawn = [figure for drawing in found.plan.drawings for figure in draw(found, drawing)][: len(self.plots)]
        return [
            gr.update(value=drawn[i], visible=True) if i < len(drawn) else gr.update(visible=False)
            for i in range(len(self.plots))
        ]

    def _make(self, id: str | None) -> tuple[Any, str]:
        """The files in a folder of their own, which is the visitor's to download."""
        try:
            found = report(self.journal, id or (self.background.work.id if self.background.work else "") or "")
        except InputError as error:
            return gr.update(visible=False), words.note(str(error), "alert")
        folder, paths = Path(tempfile.mkdtemp(prefix="experiment-")), []
        for kind in ("html", "md", "csv"):
            for name, text in WRITERS[kind](found).items():
                paths.append(str(folder / name))
                (folder / name).write_text(text, encoding="utf-8")
        return gr.update(value=paths, visible=True), ""

    def _advise(self, temperature: float | None, count: float | None, pair: PairChoice) -> Any:
        try:
            asked = {"decoders": ["greedy"], "temperature": float(temperature or 0), "max_new_tokens": 48}
            settings = Settings.from_json(asked)
            texts = [p.text for p in prompts.built_in("stories").first(min(int(count or 1), MOST_PROMPTS)).prompts]
            models = self.host.device.pair(pair)
            with (
                self.host.device.turn,
                closing(self.host.device.iterate(lambda: advise(models, texts, settings))) as happening,
            ):
                for found in happening:
                    yield (
                        words.note(found)
                        if not isinstance(found, Advice)
                        else (words.note(advice.verdict(found)) + tables.markup(advice.lines(found)))
                    )
        except InputError as error:
            yield words.note(str(error), "alert")


def _content(found: Report) -> str:
    """The report's tables and sentences."""
    parts = []
    for title, content in sections(found):
        parts.append(f"<h3>{html.escape(title)}</h3>")
        parts += [
            tables.markup(c)
            if isinstance(c, Table)
            else "".join(words.note(line.removeprefix("- ")) for line in c.split("\n"))
            for c in content
        ]
    return "".join(parts)
