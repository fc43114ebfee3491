"""A comparison on the page: the picture, the verdict, charts, all texts, details, and links."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from decoders import Method
from workbench.kinds.comparison import Comparison, strip
from workbench.page import words
from workbench.page.frame import Kept, plot
from workbench.page.runner import Runner
from workbench.page.widgets import Canvas, Updates
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.figures import rows, times_greedy
from workbench.runs.record import PromptPart, Run
from workbench.runs.store import recorded
from workbench.show import comparison, laws, tables
from workbench.show.panel import (
    BLANK,
    Panel,
    finished,
    packed,
    picture,
    run_panels,
    running,
    waiting,
)
from workbench.studies.study import BASELINE


class ComparisonResults:
    """The picture, the verdict, three charts and all texts; details and links.

    Args:
        runner: its button to measure again stands beside the verdict
    """

    def __init__(self, runner: Runner) -> None:
        self.kept = Kept(apart=True)
        self.picture = gr.HTML(elem_id="band-picture", padding=False)
        with gr.Row(elem_id="verdict"):
            self.headline = gr.HTML(elem_id="headline", elem_classes="wb-note")
            runner.lay_out_again()
        with gr.Row(visible=False, elem_id="charts") as self.box:
            self.charts = [plot(elem_id=f"chart-{i}") for i in range(3)]
        self.summary = gr.HTML(elem_id="summary", elem_classes="wb-unseen")
        # Panels of coloured tokens, with the card of each token; `strip` makes the value. `select`
        # asks for the alternatives of a token: {ask, run, decoder, at}, and `token` if one was
        # typed. `submit` continues from one of them, with {decoders}, too. `expand` asks for what
        # other rules would keep of a round: {ask, run, decoder, round}. `ask` names the question.
        self.strip = Canvas(
            "root.ask = trigger; Workbench.show(root, props.value);", elem_id="panels"
        )
        # The answers, drawn where they were asked: {ask, choices, wanted},
        # {ask, tokens, rows, note} or {ask, error}.
        self.answer = Canvas("Workbench.answered(props.value);", visible="hidden", elem_id="answer")

    def lay_out_details(self) -> None:
        self.table = gr.HTML(elem_id="figures", elem_classes="wb-note")
        self.timing = gr.HTML(elem_id="timing", elem_classes="wb-note")
        with gr.Row():
            self.details = [plot(elem_id=f"detail-{i}") for i in range(len(comparison.DETAILS))]
        self.kept.lay_out_environment()

    @property
    def outputs(self) -> list[Any]:
        top = [self.picture, self.headline, self.box, *self.charts, self.summary, self.strip]
        return [*top, self.table, self.timing, *self.details, *self.kept.outputs]

    def show(self, run: Run, unkept: bool = False, settled: bool = True) -> Updates:
        """Updates that show a run.

        Args:
            unkept: whether it could not be kept
            settled: whether its timing is over
        """
        panels = run_panels(run)
        return {
            self.picture: picture(run, panels, play=recorded(run.id) is not None),
            self.strip: strip(panels, run.id),
            **self.figures(run, settled),
            **self.kept.show(run, unkept),
        }

    def settle(self, run: Run) -> Updates:
        return {self.strip: strip(run_panels(run), run.id), **self.figures(run)}

    def figures(self, run: Run, settled: bool = True) -> Updates:
        """Updates of what timing changes: the verdict, charts and tables."""
        lines, table = rows(run.results), tables.markup(tables.figures(run))
        three = comparison.charts(lines, run.settings)
        return {
            self.headline: words.headline(run, settled),
            self.box: gr.update(visible=True),
            **dict(zip(self.charts, three, strict=True)),
            self.summary: tables.bare(tables.figures(run, tables.CHARTED)),
            self.table: table,
            self.timing: words.timing(run),
            **dict(zip(self.details, comparison.details(lines), strict=True)),
        }


class LiveComparison:
    """Shows a comparison while it runs; the texts are those of the first repeat."""

    def __init__(self, study: Comparison, results: ComparisonResults):
        self._results, self._prompt = results, study.title
        self._temperature = study.settings.temperature
        methods = sorted(study.settings.methods, key=lambda m: m.name != BASELINE)  # it runs first
        self._methods = {m.name: m for m in methods}
        self._parts: Sequence[PromptPart] = ()
        self._panels = {m.name: self._waiting(m) for m in methods}
        self._news: set[str] = set()

    def _waiting(self, method: Method) -> Panel:
        claim = laws.claim(method, self._temperature)
        return waiting(method, claim, self._prompt, self._parts)

    def begin(self) -> Updates:
        results = self._results
        return {
            results.headline: "",
            results.picture: BLANK,
            results.summary: "",
            results.table: "",
            results.timing: "",
            **{plot: gr.update(value=None) for plot in results.details},
            results.strip: self.value(),
            results.box: gr.update(visible=False),
            **results.kept.clear(),
        }

    def update(self, event: Started | Progress | Finished) -> Updates:
        name = event.at.decoder
        method = self._methods[name]
        if isinstance(event, Started) and event.parts and not self._parts:
            self._parts = event.parts
            self._panels = {m.name: self._waiting(m) for m in self._methods.values()}
            self._news.update(self._panels)
        if isinstance(event, Finished):
            row = next(row for row in rows(event.run.results) if row.decoder == name)
            panel = finished(self._waiting(method), row)
        elif event.at.repeat:
            panel = {**self._panels[name], "state": f"repeat {event.at.repeat + 1}"}
        else:
            progress = event if isinstance(event, Progress) else None
            panel = running(self._waiting(method), progress)
        self._panels[name] = panel
        self._news.add(name)
        return {} if isinstance(event, Finished) else {self._results.strip: self.changes()}

    def value(self) -> dict[str, Any]:
        return strip(map(packed, self._panels.values()), "live")

    def changes(self) -> dict[str, Any]:
        """The value of the strip with None for each panel that has not changed since the last call.

        A finished panel is large; to send it ten times a second took time from the decoder.
        """
        news, self._news = self._news, set()
        panels = [packed(panel) if name in news else None for name, panel in self._panels.items()]
        return strip(panels, "live")


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
