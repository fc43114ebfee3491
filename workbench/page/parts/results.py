"""What a finished study looks like: the parts that several tabs show."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.page.parts import words
from workbench.page.widgets.components import Alternatives, TokenStrip
from workbench.page.widgets.messages import Updates
from workbench.runs.estimates import rows
from workbench.runs.record import Run
from workbench.show import comparison, strip
from workbench.show.live import LivePanels
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


class Kept:
    """Where a run is found again, its files, and what it was measured on. The run's id goes into the address of the page."""

    def __init__(self, prefix: str = "") -> None:
        with gr.Column(visible=False) as self.box:
            self.link = gr.HTML(elem_classes="wb-note", elem_id=f"{prefix}run-link")
            with gr.Accordion("Environment: what these figures were measured on", open=False):
                self.environment = gr.HTML(elem_id=f"{prefix}environment", elem_classes="wb-note")
        self.run_id = gr.Textbox(visible="hidden")
        address = "(id) => WorkbenchPage.address(id)"
        self.run_id.change(None, self.run_id, None, js=address, api_visibility="private")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.link, self.environment, self.run_id]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.link: words.kept(run, unkept),
            self.environment: words.environment(run),
            self.run_id: "" if unkept else run.id,
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), self.run_id: ""}


@dataclass(frozen=True)
class Drawn:
    """What stands on top of a comparison's results: two texts as HTML, and the strip's value."""

    headline: str
    steps: str
    panels: dict[str, Any]


def drawn(run: Run) -> Drawn:
    headline = words.trail(run) + words.headline(run)
    return Drawn(headline, words.how_it_works(run), strip.view(strip.run_panels(run), run.id))


class ComparisonResults:
    """What came out of a comparison in sentences, how it works, its panels, its charts, and where it is kept."""

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

    def show(self, run: Run, unkept: bool = False) -> Updates:
        found = drawn(run)
        return {
            self.headline: found.headline,
            self.steps: found.steps,
            self.strip: found.panels,
            **self.charts.show(run),
            **self.kept.show(run, unkept),
        }

    def begin(self, panels: LivePanels) -> Updates:
        """Empty panels, until there is something in them."""
        nothing = {self.headline: "", self.steps: "", self.strip: panels.value()}
        return {**nothing, **self.charts.clear(), **self.kept.clear()}
