"""An experiment as anyone sees it: how far it is, its tables and its figures, from the journal alone."""

import html
import time
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments.background import Background
from workbench.experiments.journal import Journal, Progress
from workbench.experiments.report import Report, report
from workbench.experiments.sections import as_html, sections
from workbench.page.parts import words

REDRAW_SECONDS = 10.0  # between two drawings of what still runs: drawing takes time from what is timed


class ExperimentView:
    """`outputs` are updated by `drawn`; `shown` says what was drawn last, so that nothing is drawn twice."""

    def __init__(self, journal: Journal, background: Background):
        self.journal, self.background = journal, background
        self.progress = gr.HTML(elem_id="experiment-progress", elem_classes="wb-note")
        self.report = gr.HTML(elem_id="experiment-report", elem_classes="wb-note wb-experiment")
        self.shown = gr.State(None)  # which experiment was drawn, after how many items, and when

    @property
    def outputs(self) -> list[Any]:
        return [self.progress, self.report, self.shown]

    def now(self, id: str | None) -> Progress | None:
        """None also for an experiment that has only begun to load, which is not in the journal yet."""
        try:
            return self.journal.progress(id) if id else None
        except InputError:
            return None

    def drawn(self, now: Progress | None, shown: tuple[str, int, float] | None) -> list[Any]:
        if now is None:
            return [self._says(None), "", None]
        if shown is not None and shown[0] == now.id:
            waits = now.running and time.monotonic() - shown[2] < REDRAW_SECONDS
            if waits or shown[1] == now.done:
                return [self._says(now), gr.skip(), gr.skip()]
        content = _content(report(self.journal, now.id))
        return [self._says(now), content, (now.id, now.done, time.monotonic())]

    def _says(self, now: Progress | None) -> str:
        work = self.background.work
        fault = words.note(work.fault, "alert") if work and work.fault else ""
        if now is None:
            return (words.note(self.background.says(None)) if self.background.running else "") + fault
        left = f" · about {words.seconds_left(now.eta)} left" if now.running and now.eta is not None else ""
        return words.note(self.background.says(now) + left) + words.bar(now.done / max(1, now.total)) + fault


def _content(found: Report) -> str:
    each = [f"<h3>{html.escape(s.title)}</h3>{as_html(s.content)}" for s in sections(found)]
    return "".join(each)
