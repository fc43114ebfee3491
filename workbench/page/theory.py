"""The papers' formulas to play with, and the place of a run on their curves."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.page import words
from workbench.page.frame import plot
from workbench.page.host import Host
from workbench.page.widgets import QUIET, room
from workbench.runs.figures import label
from workbench.runs.store import recordings
from workbench.theory import PAGES
from workbench.theory.estimates import Measurements, measured
from workbench.theory.page import Choice, Page, Slider
from workbench.theory.papers import FIRST

INTRODUCTION = (
    "How much faster does guessing make a model? Two things decide: how often a guess is kept, and "
    "what a guess costs. Move both; the diamond is what was measured."
)


class TheoryTab:
    def __init__(self, host: Host):
        self.host = host
        compared = [each.run for each in recordings() if each.run.kind == "comparison"][:1]
        self.always = [
            ("none", ""),
            *((f"recorded: {each.title}", each.run.id) for each in recordings()),
        ]
        with room("Theory", "theory", in_lab=True) as self.tab:
            gr.Markdown(INTRODUCTION, elem_classes="wb-note")
            first = self._lay_out_in(FIRST)
            self.run = gr.Dropdown(
                self.always,
                value=compared[0].id if compared else "",
                label="Compare with one of your runs",
                elem_id="theory-run",
                info="Its measurements are shown as diamonds."
                + (" Paste the id from its link." if host.limits.public else ""),
                allow_custom_value=host.limits.public,
            )
            self.note = gr.HTML(elem_id="theory-note", elem_classes="wb-note")
            self.measured = gr.State(measured(compared[0]) if compared else Measurements())
            self.picked = self.run.change(self._pick, self.run, [self.measured, self.note], **QUIET)
            self._redraw(self.tab, FIRST, *first)
            with gr.Tabs(overflow_behavior="wrap"):
                for page in PAGES:
                    with gr.Tab(page.title) as tab:
                        self._redraw(tab, page, *self._lay_out_in(page))
        self.tab.select(self._list, None, self.run, **QUIET)

    def _lay_out_in(self, page: Page) -> tuple[list[Any], list[Any]]:
        with gr.Row():
            fields = [control(field) for field in page.fields]
        now = gr.Markdown(elem_classes="wb-now")
        figure = plot()
        if page.formula:
            gr.Markdown(
                f"$${page.formula}$$\n\n{page.says}",
                latex_delimiters=[{"left": "$$", "right": "$$", "display": True}],
            )
        if page.source:
            gr.Markdown(page.source, elem_classes="wb-note")
        return fields, [now, figure]

    def _redraw(self, tab: gr.Tab, page: Page, fields: list[Any], outputs: list[Any]) -> None:
        def redraw(found: Measurements, *values: Any) -> list[Any]:
            if wrong := fault(page, values):
                return [words.note(wrong, "alert"), gr.skip()]
            return draw(page, found, values)

        inputs = [self.measured, *fields]
        # As it was typed: Gradio's own answer to an emptied box is the text of a TypeError.
        plain = {**QUIET, "preprocess": False}
        self.picked.then(redraw, inputs, outputs, **plain)
        gr.on(
            [tab.select, *(field.change for field in fields)],
            redraw,
            inputs,
            outputs,
            trigger_mode="always_last",
            **plain,
        )

    def _list(self) -> Any:
        if self.host.limits.public:
            return gr.skip()
        try:
            kept = self.host.store.list()
        except InputError:
            kept = []  # the Runs tab says why
        runs = [
            (
                f"{words.when(run.created)} UTC · {run.kind} · "
                f"{', '.join(map(label, run.decoders))} · {run.models}",
                run.id,
            )
            for run in kept
            if run.decoders
        ]
        return gr.update(choices=[*self.always, *runs])

    def _pick(self, id: str | None) -> tuple[Measurements, str]:
        try:
            return (measured(self.host.store.get(id.strip())) if id else Measurements()), ""
        except InputError as error:
            return Measurements(), words.note(str(error), "alert")


def control(field: Choice | Slider) -> Any:
    if isinstance(field, Choice):
        options = [(words, value) for value, words in field.options().items()]
        return gr.Dropdown(
            options, value=field.value, label=field.label, info=field.help, min_width=260
        )
    return gr.Slider(
        field.low, field.high, field.value,
        step=field.step, label=field.label, info=field.help, min_width=260,
    )  # fmt: skip


def fault(page: Page, values: Sequence[Any]) -> str | None:
    """A sentence on the first value that cannot be used, or None."""
    for field, x in zip(page.fields, values, strict=True):
        if isinstance(field, Choice):
            if x not in field.options():
                return f"{field.label} must be picked from its list."
            continue
        whole = isinstance(field.value, int)
        usable = isinstance(x, (int, float)) and field.low <= x <= field.high
        if not usable or (whole and x != int(x)):
            return (
                f"{field.label} must be a {'whole ' if whole else ''}number from {field.low:g} to "
                f"{field.high:g}; type one, or move the slider."
            )
    return None


def draw(page: Page, found: Measurements, values: Sequence[Any]) -> list[Any]:
    v = SimpleNamespace(
        **{each.name: type(each.value)(x) for each, x in zip(page.fields, values, strict=True)}
    )
    words = page.now(v)
    if found != Measurements():
        words += f"\n\n**Measured:** {page.of_run(found)}"
    return [words, page.figure(v, found)]
