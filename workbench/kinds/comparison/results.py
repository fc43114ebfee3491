"""A comparison on the page: results in sentences, explanation, panels, charts, and links."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.kinds.comparison.live import LivePanels
from workbench.page.parts import words
from workbench.page.parts.kept import Kept
from workbench.page.widgets.components import Alternatives, TokenStrip
from workbench.page.widgets.messages import Updates
from workbench.runs.estimates import rows
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.show import comparison, steps, strip
from workbench.show.tables import figures, markup


class Charts:
    """The charts of a comparison and the table with the same numbers."""

    def __init__(self) -> None:
        with gr.Column(visible=False) as self.box:
            self.drawn = gr.HTML(elem_id="charts", elem_classes="wb-note")
            self.table = gr.HTML(elem_id="figures", elem_classes="wb-note")
            self.timing = gr.HTML(elem_id="timing", elem_classes="wb-note")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.drawn, self.table, self.timing]

    def show(self, run: Run) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.drawn: comparison.charts(rows(run.results), run.settings),
            self.table: markup(figures(run)),
            self.timing: words.timing(run),
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False)}


@dataclass(frozen=True)
class Drawn:
    """The top of a comparison's results: two texts as HTML, and the strip's value."""

    headline: str
    steps: str
    panels: dict[str, Any]


def drawn(run: Run) -> Drawn:
    headline = words.trail(run) + words.headline(run)
    return Drawn(headline, steps.how_it_works(run), strip.view(strip.run_panels(run), run.id))


class ComparisonResults:
    """The results in sentences, the explanation, the panels, the charts, and links to the run."""

    def __init__(self) -> None:
        self.headline = gr.HTML(elem_id="headline", elem_classes="wb-note")
        self.steps = gr.HTML(elem_id="steps", elem_classes="wb-note")
        self.strip = TokenStrip(elem_id="panels")
        self.alternatives = Alternatives(visible="hidden")
        self.charts = Charts()
        self.kept = Kept()

    @property
    def outputs(self) -> list[Any]:
        return [self.headline, self.steps, self.strip, *self.charts.outputs, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        top = drawn(run)
        return {
            self.headline: top.headline,
            self.steps: top.steps,
            self.strip: top.panels,
            **self.charts.show(run),
            **self.kept.show(run, unkept),
        }

    def begin(self, panels: LivePanels) -> Updates:
        """Updates for the beginning of a run: empty panels."""
        nothing = {self.headline: "", self.steps: "", self.strip: panels.value()}
        return {**nothing, **self.charts.clear(), **self.kept.clear()}


class Live:
    """The panels of a comparison while it runs."""

    def __init__(self, panels: LivePanels, results: ComparisonResults):
        self._panels, self._results = panels, results

    def begin(self) -> Updates:
        return self._results.begin(self._panels)

    def update(self, event: Started | Progress | Finished) -> Updates:
        self._panels.update(event)
        return {} if isinstance(event, Finished) else {self._results.strip: self._panels.changes()}
