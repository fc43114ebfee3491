"""Past comparisons: reopen one, compare two, delete, import."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from decoders import InputError
from workbench.page.host import Host
from workbench.page.parts import words as notes
from workbench.page.parts.results import Charts, Updates
from workbench.page.tabs.compare import CompareTab
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.token_strip import TokenStrip
from workbench.runs.store import Run
from workbench.show import strip as views

SIDES = ("A", "B")
LISTED = 100
PROMPT_SHOWN = 48
CONFIRM = "(ids) => ids.length && confirm(`Delete ${ids.length} run${ids.length > 1 ? 's' : ''}?`) ? [ids] : [[]]"


class RunsTab:
    def __init__(self, host: Host, compare: CompareTab, tabs: gr.Tabs):
        self.host = host
        with gr.Tab("Runs", id="runs") as self.tab:
            self._lay_out()
        self._tabs = tabs
        self._wire(compare)

    def _lay_out(self) -> None:
        if self.host.limits.public:
            gr.Markdown("On a shared machine runs are not listed: each is found by its own link.")
        self.chosen = gr.CheckboxGroup(
            [], label="Past runs", info="Tick one to open it, two to compare them.", elem_id="past-runs",
            visible=not self.host.limits.public,
        )  # fmt: skip
        with gr.Row():
            self.open = gr.Button("Open", variant="primary", elem_id="open-run")
            self.both = gr.Button("Compare two", elem_id="compare-two")
            self.delete = gr.Button("Delete", variant="stop", elem_id="delete-run")
            self.upload = gr.UploadButton("Import a JSON file", file_types=[".json"], elem_id="import-run")
        self.note = gr.HTML(elem_id="runs-note", elem_classes="wb-note")
        self.titles, self.strips = [], []
        for side in SIDES:
            self.titles.append(gr.HTML(elem_classes="wb-note"))
            self.strips.append(TokenStrip(elem_id=f"run-{side}"))
        self.charts = Charts()

    def _wire(self, compare: CompareTab) -> None:
        self.tab.select(self._list, None, self.chosen, **QUIET)
        gr.on(
            [self.open.click],
            lambda ids: self._open(ids, compare),
            self.chosen,
            [self._tabs, self.note, *compare.outputs],
            **compare.noted.filling,
        ).then(None, None, None, js="() => window.scrollTo({top: 0})", api_visibility="private")
        self.upload.upload(
            lambda path: self._import(path, compare),
            self.upload,
            [self._tabs, self.note, *compare.outputs],
            **compare.noted.filling,
        )
        sides = [part for side in zip(self.titles, self.strips, strict=True) for part in side]
        self.both.click(self._both, self.chosen, [self.note, *sides, *self.charts.outputs], **QUIET)
        self.delete.click(self._delete, self.chosen, [self.chosen, self.note], js=CONFIRM, **QUIET)

    def _list(self) -> Any:
        if self.host.limits.public:
            return gr.skip()
        choices = [
            (
                f"{run.created[:16].replace('T', ' ')} · {_short(run.prompt)} · {', '.join(run.decoders)} · {run.models}",
                run.id,
            )
            for run in self.host.store.list(LISTED)
        ]
        return gr.update(choices=choices, value=[])

    def _open(self, ids: list[str], compare: CompareTab) -> Updates:
        if len(ids) != 1:
            return {self.note: notes.note("Tick one run to open it.", "alert")}
        return self._shown(lambda: self.host.store.get(ids[0]), compare)

    def _import(self, path: str, compare: CompareTab) -> Updates:
        def read() -> Run:
            run = Run.from_json(Path(path).read_bytes())
            self.host.store.save(run)
            return run

        return self._shown(read, compare)

    def _shown(self, find: Any, compare: CompareTab) -> Updates:
        try:
            run = find()
        except InputError as error:
            return {self.note: notes.note(str(error), "alert")}
        return {**compare.show(run), self.note: "", self._tabs: gr.update(selected="compare")}

    def _both(self, ids: list[str]) -> Updates:
        if len(ids) != 2:
            return {self.note: notes.note("Tick two runs to compare them.", "alert")}
        try:
            runs = [self.host.store.get(id) for id in ids]
        except InputError as error:
            return {self.note: notes.note(str(error), "alert")}
        updates: Updates = {self.note: ""}
        for side, run, title, strip in zip(SIDES, runs, self.titles, self.strips, strict=True):
            updates |= {title: notes.heading(side, run), strip: views.view(views.run_panels(run), run.id)}
        sided = [
            replace(r, decoder=f"{r.decoder} {side}")
            for side, run in zip(SIDES, runs, strict=True)
            for r in run.results
        ]
        return {**updates, **self.charts.show(sided)}

    def _delete(self, ids: list[str]) -> tuple[Any, str]:
        for id in ids:
            try:
                self.host.store.delete(id)
            except InputError as error:
                return self._list(), notes.note(str(error), "alert")
        return self._list(), notes.note(f"Deleted: {len(ids)}.") if ids else ""


def _short(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= PROMPT_SHOWN else line[: PROMPT_SHOWN - 1] + "…"
