"""The parts of a tab that show a run: figures, links to the run and its files, its environment."""

from typing import Any, Protocol, Self

import gradio as gr

from workbench.page.parts import words
from workbench.page.widgets.handlers import Updates
from workbench.runs.events import Finished, Progress, Started
from workbench.runs.record import Run
from workbench.show import tables

SAVING = "".join(
    f'<button type="button" data-save="{kind.lower()}" aria-label="Save this chart as {kind}">'
    f"{kind}</button>"
    for kind in ("SVG", "PNG")
)


def plot(min_width: int = 300, **options: Any) -> gr.Plot:
    """A chart, with buttons that save it as a file."""
    with gr.Column(min_width=min_width, elem_classes="wb-plot"):
        chart = gr.Plot(show_label=False, container=False, **options)
        gr.HTML(SAVING, elem_classes="wb-save", padding=False)
    return chart


class Follower(Protocol):
    """The part of a tab that shows a study while it runs."""

    def begin(self) -> Updates: ...

    def update(self, event: Started | Progress | Finished) -> Updates:
        """{} if there is nothing to draw yet."""


class Kept:
    """Links to a run and its files, and its environment; its id goes into the page's address.

    Args:
        prefix: the beginning of the `elem_id` of each part
        apart: whether the environment stands in another place: `lay_out_environment` puts it there
    """

    def __init__(self, prefix: str = "", apart: bool = False) -> None:
        self.prefix, self.apart = prefix, apart
        with gr.Column(visible=False, elem_classes="kept-box") as self.box:
            self.link = gr.HTML(elem_classes="wb-note", elem_id=f"{prefix}run-link")
            if not apart:
                self.lay_out_environment()
        self.run_id = gr.Textbox(visible="hidden")
        self.run_id.change(
            None, self.run_id, None, api_visibility="private",
            js=f"(id) => WorkbenchPage.address(id, '{prefix}')",
        )  # fmt: skip

    def lay_out_environment(self) -> None:
        with gr.Accordion("Environment of these measurements", open=False):
            self.environment = gr.HTML(elem_id=f"{self.prefix}environment", elem_classes="wb-note")

    @property
    def outputs(self) -> list[Any]:
        return [self.box, self.link, self.environment, self.run_id]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.link: words.share(run, unkept) if self.apart else words.kept(run, unkept),
            self.environment: words.environment(run),
            self.run_id: "" if unkept else run.id,
        }

    def clear(self) -> Updates:
        return {self.box: gr.update(visible=False), self.run_id: ""}


class Figures:
    """The default results: a table of figures, notes on timings, and links.

    They show a run while it grows, too. Kinds with other results replace `lay_out` and `growing`.

    Args:
        prefix: the beginning of the `elem_id` of each part
    """

    def __init__(self, prefix: str = "") -> None:
        with gr.Column(visible=False) as self.box:
            parts = self.lay_out(prefix)
        self.kept = Kept(prefix)
        self.parts = [self.box, *parts]

    @property
    def outputs(self) -> list[Any]:
        return [*self.parts, *self.kept.outputs]

    def lay_out(self, prefix: str) -> list[Any]:
        """Lay out the parts that show the run; returns them."""
        self.table = gr.HTML(elem_id=f"{prefix}figures", elem_classes="wb-note")
        self.timing = gr.HTML(elem_id=f"{prefix}timing", elem_classes="wb-note")
        return [self.table, self.timing]

    def show(self, run: Run, unkept: bool = False, *looked_at: Any) -> Updates:
        """Updates that show a finished run, which may have no results."""
        return {**self.growing(run, *looked_at), **self.kept.show(run, unkept)}

    def growing(self, run: Run, *looked_at: Any) -> Updates:
        """Updates that show a run as far as it is finished."""
        return {
            self.box: gr.update(visible=True),
            self.table: tables.markup(tables.figures(run)),
            self.timing: words.timing(run),
        }

    def follow(self) -> Self:
        return self

    def begin(self) -> Updates:
        return {self.box: gr.update(visible=False), **self.kept.clear()}

    def update(self, event: Started | Progress | Finished) -> Updates:
        return self.growing(event.run) if isinstance(event, Finished) else {}
