"""The papers' formulas to play with, and where a run lies on their curves."""

from types import SimpleNamespace
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.host import Host
from workbench.measured import Measured, measured
from workbench.panels import notes
from workbench.panels.wiring import QUIET
from workbench.theory_pages import PAGES, Page

LISTED = 100
LATEX = [{"left": "$$", "right": "$$", "display": True}]


class TheoryTab:
    def __init__(self, host: Host):
        self.host = host
        with gr.Tab("Theory", id="theory") as self.tab:
            self.run = gr.Dropdown(
                [("none", "")], value="", label="Set a run beside the theory", elem_id="theory-run",
                info="What it measured shows as diamonds." + (" Paste the id from its link." if host.limits.public else ""),
                allow_custom_value=host.limits.public,
            )  # fmt: skip
            self.note = gr.HTML(elem_id="theory-note", elem_classes="wb-note")
            self.measured = gr.State(Measured())
            with gr.Tabs():
                for page in PAGES:
                    with gr.Tab(page.title):
                        self._lay_out(page)
        self.tab.select(self._list, None, self.run, **QUIET)
        self.run.change(self._pick, self.run, [self.measured, self.note], **QUIET)

    def _lay_out(self, page: Page) -> None:
        first = draw(page, Measured(), [s.value for s in page.sliders])
        with gr.Row(elem_classes="theory-sliders"):
            sliders = [
                gr.Slider(s.low, s.high, s.value, step=s.step, label=s.label, min_width=260) for s in page.sliders
            ]
        outputs: list[Any] = [gr.Markdown(first[0], elem_classes="theory-now")]
        with gr.Row(elem_classes="theory-cards"):
            for card, figure in zip(page.cards, first[1:], strict=False):
                with gr.Column(min_width=340, elem_classes="theory-card"):
                    gr.Markdown(f"### {card.title}")
                    outputs.append(gr.Plot(figure, show_label=False, container=False))
                    gr.Markdown(f"$${card.formula}$$\n\n{card.says}", latex_delimiters=LATEX)
        if page.tables:
            with gr.Accordion("The paper’s tables beside its formulas", open=False):
                outputs.append(gr.Markdown(first[-1], elem_classes="theory-tables"))
        gr.Markdown(page.source, elem_classes="wb-note")
        gr.on(
            [self.measured.change, *(s.change for s in sliders)],
            lambda found, *values: draw(page, found, values),
            [self.measured, *sliders],
            outputs,
            trigger_mode="always_last",
            **QUIET,
        )

    def _list(self) -> Any:
        if self.host.limits.public:
            return gr.skip()
        runs = [
            (f"{run.created[:16].replace('T', ' ')} · {', '.join(run.decoders)} · {run.models}", run.id)
            for run in self.host.store.list(LISTED)
        ]
        return gr.update(choices=[("none", ""), *runs])

    def _pick(self, id: str | None) -> tuple[Measured, str]:
        try:
            return (measured(self.host.store.get(id.strip())) if id else Measured()), ""
        except InputError as error:
            return Measured(), notes.note(str(error), "alert")


def draw(page: Page, found: Measured, values: Any) -> list[Any]:
    """What follows the sliders and the run: the words, the figures and, where the page has them, the tables."""
    v = SimpleNamespace(
        **{s.name: s.value if x is None else type(s.value)(x) for s, x in zip(page.sliders, values, strict=True)}
    )
    words = page.now(v) + ("" if found == Measured() else f"\n\nIn the run {page.found(found)}")
    tables = [page.tables(found)] if page.tables else []
    return [words, *(card.figure(v, found) for card in page.cards), *tables]
