"""A comparison on the page: the picture, the verdict, charts, all texts, details, and links."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from decoders import Method
from workbench.kinds.comparison import Comparison, strip
from workbench.page import words
from workbench.page.frame import Kept, plot
from workbench.page.runner import Runner
from workbench.page.widgets import Alternatives, TokenStrip, Updates
from workbench.runs.events import At, Finished, Progress, Started
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
            self.charts = _plots("chart", 3)
        self.summary = gr.HTML(elem_id="summary", elem_classes="wb-unseen")
        self.strip = TokenStrip(elem_id="panels")
        self.alternatives = Alternatives(visible="hidden")

    def lay_out_details(self) -> None:
        """Lay out what a researcher asks next."""
        self.table = gr.HTML(elem_id="figures", elem_classes="wb-note")
        self.timing = gr.HTML(elem_id="timing", elem_classes="wb-note")
        with gr.Row():
            self.details = _plots("detail", len(comparison.DETAILS))
        self.kept.lay_out_environment()

    @property
    def outputs(self) -> list[Any]:
        top = [self.picture, self.headline, self.box, *self.charts, self.summary, self.strip]
        return [*top, self.table, self.timing, *self.details, *self.kept.outputs]

    def show(
        self, run: Run, unkept: bool = False, *looked_at: Any, settled: bool = True
    ) -> Updates:
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
        """Updates of a run in view whose timing is over."""
        return {self.strip: strip(run_panels(run), run.id), **self.figures(run)}

    def figures(self, run: Run, settled: bool = True) -> Updates:
        """Updates of what timing changes: the verdict, charts and tables."""
        lines, table = rows(run.results), tables.markup(tables.figures(run))
        three = comparison.charts(lines, run.settings)
        return {
            self.headline: words.trail(run) + words.headline(run, settled),
            self.box: gr.update(visible=True),
            **dict(zip(self.charts, three, strict=True)),
            self.summary: tables.bare(tables.summary(run)),
            self.table: table,
            self.timing: words.timing(run),
            **dict(zip(self.details, comparison.details(lines), strict=True)),
        }


def _plots(name: str, count: int) -> list[gr.Plot]:
    return [plot(elem_id=f"{name}-{i}") for i in range(count)]


class LivePanels:
    """Follows the events of a comparison, and gives the value of the strip.

    The texts are those of the first repeat.
    """

    def __init__(self, study: Comparison):
        methods = sorted(study.settings.methods, key=lambda m: m.name != BASELINE)  # it runs first
        self._prompt, self._methods = study.title, {m.name: m for m in methods}
        self._parts: Sequence[PromptPart] = ()
        self._done: dict[str, Panel] = {}  # by decoder: its last panel
        self._temperature = study.settings.temperature
        self._packed = {m.name: packed(self._waiting(m)) for m in methods}
        self._sent: dict[str, str] = {}

    def _waiting(self, method: Method) -> Panel:
        claim = laws.claim(method, self._temperature)
        return waiting(method, claim, self._prompt, self._parts)

    def update(self, event: Started | Progress | Finished) -> None:
        method = self._methods[event.at.decoder]
        if isinstance(event, Started) and event.parts and not self._parts:
            self._parts = event.parts
            self._packed = {m.name: packed(self._waiting(m)) for m in self._methods.values()}
        if isinstance(event, Finished) and not event.at.lap:
            row = next(row for row in rows(event.run.results) if row.decoder == method.name)
            panel = self._done[method.name] = finished(self._waiting(method), row)
        elif event.at.repeat or event.at.lap:
            # The range over several timings comes at the end: to make it now would take time from
            # the next timing.
            if (done := self._done.get(method.name)) is None:
                return
            panel = {**done, "state": _again(event.at)}
        else:
            progress = event if isinstance(event, Progress) else None
            panel = running(self._waiting(method), progress)
        self._packed[method.name] = packed(panel)

    def value(self) -> dict[str, Any]:
        return strip(self._packed.values(), "live")

    def changes(self) -> dict[str, Any]:
        """The value of the strip with None for each panel that has not changed since the last call.

        A finished panel is large; to send it ten times a second took time from the decoder.
        """
        changed = [
            None if self._sent.get(name) == text else text for name, text in self._packed.items()
        ]
        self._sent = dict(self._packed)
        return strip(changed, "live")


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


class LiveComparison:
    def __init__(self, study: Comparison, results: ComparisonResults):
        self._panels, self._results = LivePanels(study), results

    def begin(self) -> Updates:
        """Updates for the beginning of a run: empty panels."""
        results = self._results
        return {
            results.headline: "",
            results.picture: BLANK,
            results.summary: "",
            results.table: "",
            results.timing: "",
            **{plot: gr.update(value=None) for plot in results.details},
            results.strip: self._panels.value(),
            results.box: gr.update(visible=False),
            **results.kept.clear(),
        }

    def update(self, event: Started | Progress | Finished) -> Updates:
        self._panels.update(event)
        return {} if isinstance(event, Finished) else {self._results.strip: self._panels.changes()}
