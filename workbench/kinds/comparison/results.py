"""A comparison on the page: results in sentences, panels, explanation, charts, and links."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import gradio as gr

from decoders import Method
from workbench.kinds.comparison.study import Comparison
from workbench.kinds.comparison.view import run_panels, view
from workbench.page.parts import words
from workbench.page.parts.results import Kept
from workbench.page.widgets.components import Alternatives, TokenStrip
from workbench.page.widgets.handlers import Updates
from workbench.runs.estimates import rows, times_greedy
from workbench.runs.events import At, Finished, Progress, Started
from workbench.runs.record import Run
from workbench.runs.recorded import recorded
from workbench.runs.trace import PromptPart
from workbench.show import comparison, laws, steps, tables
from workbench.show.panel import Panel
from workbench.studies.schemes import BASELINE


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The top of a comparison's results: two texts as HTML, and the strip's value."""

    headline: str
    steps: str
    panels: dict[str, Any]


def drawn(run: Run) -> Drawn:
    return Drawn(
        words.trail(run) + words.headline(run),
        steps.how_it_works(run),
        {**view(run_panels(run), run.id), "recorded": recorded(run.id) is not None},
    )


class ComparisonResults:
    """The results in sentences, the panels, the explanation, charts and figures, and links."""

    def __init__(self) -> None:
        self.headline = gr.HTML(elem_id="headline", elem_classes="wb-note")
        self.strip = TokenStrip(elem_id="panels")
        self.steps = gr.HTML(elem_id="steps", elem_classes="wb-note")
        self.alternatives = Alternatives(visible="hidden")
        with gr.Column(visible=False) as self.box:
            self.charts = gr.HTML(elem_id="charts", elem_classes="wb-note")
            self.table = gr.HTML(elem_id="figures", elem_classes="wb-note")
            self.timing = gr.HTML(elem_id="timing", elem_classes="wb-note")
        self.kept = Kept()
        top, charts = (
            [self.headline, self.strip, self.steps],
            [self.charts, self.table, self.timing],
        )
        self.outputs: list[Any] = [*top, self.box, *charts, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        top = drawn(run)
        return {
            self.headline: top.headline,
            self.steps: top.steps,
            self.strip: top.panels,
            self.box: gr.update(visible=True),
            self.charts: comparison.charts(rows(run.results), run.settings),
            self.table: tables.markup(tables.figures(run)),
            self.timing: words.timing(run),
            **self.kept.show(run, unkept),
        }


class LivePanels:
    """Follows the events of a comparison, and gives the value of the strip.

    The texts are those of the first repeat.

    Args:
        study: the comparison
    """

    def __init__(self, study: Comparison):
        methods = sorted(study.settings.methods, key=lambda m: m.name != BASELINE)  # it runs first
        self._prompt, self._methods = study.title, {m.name: m for m in methods}
        self._parts: Sequence[PromptPart] = ()
        self._done: dict[str, Panel] = {}  # by decoder: its last panel
        self._temperature = study.settings.temperature
        self._packed = {m.name: self._waiting(m) for m in methods}
        self._sent: dict[str, str] = {}

    def _waiting(self, method: Method) -> str:
        panel = Panel.waiting(method, self._prompt, self._temperature)
        return dataclasses.replace(panel, parts=self._parts).to_json()

    def update(self, event: Started | Progress | Finished) -> None:
        method = self._methods[event.at.decoder]
        if isinstance(event, Started) and event.parts and not self._parts:
            self._parts = event.parts
            self._packed = {m.name: self._waiting(m) for m in self._methods.values()}
        if isinstance(event, Finished) and not event.at.lap:
            row = next(row for row in rows(event.run.results) if row.decoder == method.name)
            panel = self._done[method.name] = Panel.finished(
                row, self._prompt, laws.claim(method, self._temperature)
            )
        elif event.at.repeat or event.at.lap:
            # The range over several timings comes at the end: to make it now would take time from
            # the next timing.
            if (done := self._done.get(method.name)) is None:
                return
            panel = dataclasses.replace(done, state=_again(event.at))
        else:
            panel = Panel.running(
                method,
                self._prompt,
                self._temperature,
                event if isinstance(event, Progress) else None,
            )
        panel = dataclasses.replace(panel, rule=laws.rule(method), parts=self._parts)
        self._packed[method.name] = panel.to_json()

    def value(self) -> dict[str, Any]:
        return view(self._packed.values(), "live")

    def changes(self) -> dict[str, Any]:
        """The value of the strip with None for each panel that has not changed since the last call.

        A finished panel is large; to send it ten times a second took time from the decoder.
        """
        changed = [
            None if self._sent.get(name) == text else text for name, text in self._packed.items()
        ]
        self._sent = dict(self._packed)
        return view(changed, "live")


def _again(at: At) -> str:
    """The repeat or timing that runs now, of a text that is already shown."""
    repeat = f"repeat {at.repeat + 1}" if at.repeat else ""
    timing = f"timing {at.lap + 1} of {at.laps}" if at.lap else ""
    return ", ".join(filter(None, (repeat, timing)))


def samples(run: Run) -> dict[str, Any]:
    """Each result in JSON with its only sample, as endpoints give it since version 1."""
    x_greedy = {
        id(r): times_greedy(r, g)
        for row in rows(run.results)
        for r, g in zip(row.results, row.greedy, strict=True)
    }
    return {
        "results": [
            {**data, **data["samples"][0], "error": result.error, "x_greedy": x_greedy[id(result)]}
            for result, data in zip(run.results, run.to_json()["results"], strict=True)
        ]
    }


class Live:
    """The panels of a comparison while it runs."""

    def __init__(self, study: Comparison, results: ComparisonResults):
        self._panels, self._results = LivePanels(study), results

    def begin(self) -> Updates:
        """Updates for the beginning of a run: empty panels."""
        results = self._results
        return {
            results.headline: "",
            results.steps: "",
            results.strip: self._panels.value(),
            results.box: gr.update(visible=False),
            **results.kept.clear(),
        }

    def update(self, event: Started | Progress | Finished) -> Updates:
        self._panels.update(event)
        return {} if isinstance(event, Finished) else {self._results.strip: self._panels.changes()}
