"""Past runs of every kind: find one, open it, compare two, delete, import."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import gradio as gr

from decoders import InputError
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.parts.results import Charts
from workbench.page.widgets.components import RunTable, TokenStrip
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import NotedForm, Updates
from workbench.runs import imports
from workbench.runs.estimates import rows
from workbench.runs.record import Run
from workbench.show import strip
from workbench.show.tables import markup, side_by_side
from workbench.studies.comparison import Comparison
from workbench.studies.text import counted

SIDES = ("A", "B")
ORDERS = [("newest first", "newest"), ("oldest first", "oldest"), ("by title", "title")]
EVERY = "all"
PUBLIC = "On a shared machine runs are not listed: each is found by its own link."


class StudyTab(Protocol):
    """A tab that shows the runs of one kind."""

    id: str
    noted: NotedForm

    @property
    def outputs(self) -> list[Any]: ...

    def show(self, run: Run) -> Updates: ...


class RunsTab:
    """shown_in   for each kind of run the tab that shows it"""

    def __init__(self, host: Host, shown_in: Mapping[str, StudyTab], tabs: gr.Tabs):
        self.host, self.shown_in, self._tabs = host, shown_in, tabs
        with gr.Tab("Runs", id="runs") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        listed = not self.host.limits.public
        if not listed:
            gr.Markdown(PUBLIC)
        with gr.Row(visible=listed):
            self.search = gr.Textbox(
                "",
                label="Search",
                placeholder="words of a title, a decoder, a model or an id",
                elem_id="search-runs",
                scale=3,
            )
            kinds = [EVERY, *self.shown_in]
            self.kind = gr.Dropdown(kinds, value=EVERY, label="Kind", elem_id="kind-of-runs", min_width=140)
            self.order = gr.Dropdown(ORDERS, value="newest", label="Order", elem_id="order-of-runs", min_width=140)
        self.chosen = RunTable(elem_id="past-runs", visible=listed)
        self.condemned = gr.JSON(visible="hidden")  # filled in the browser, if the visitor agrees to delete
        with gr.Row():
            self.open = gr.Button("Open", variant="primary", elem_id="open-run", visible=listed)
            self.both = gr.Button("Compare two", elem_id="compare-two", visible=listed)
            self.delete = gr.Button("Delete", variant="stop", elem_id="delete-run", visible=listed)
            self.upload = gr.UploadButton("Import a JSON file", file_types=[".json"], elem_id="import-run")
        self.note = gr.HTML(elem_id="runs-note", elem_classes="wb-note")
        self.titles, self.strips = [], []
        for side in SIDES:
            self.titles.append(gr.HTML(elem_classes="wb-note"))
            self.strips.append(TokenStrip(elem_id=f"run-{side}"))
        self.charts = Charts()
        self.table = gr.HTML(elem_id="both-figures", elem_classes="wb-note")

    def _wire(self) -> None:
        listing = [self.search, self.kind, self.order]
        changed = (each.change for each in listing)
        gr.on([self.tab.select, *changed], self._list, listing, self.chosen, trigger_mode="always_last", **QUIET)
        outputs = [self._tabs, self.note, *(part for tab in self.shown_in.values() for part in tab.outputs)]
        filling = next(iter(self.shown_in.values())).noted.filling
        opened = self.open.click(self._open, self.chosen, outputs, **filling)
        imported = self.upload.upload(self._import, self.upload, outputs, **filling)
        for shown in (opened, imported):
            shown.then(None, None, None, js="() => window.scrollTo({top: 0})", api_visibility="private")
        sides = [part for side in zip(self.titles, self.strips, strict=True) for part in side]
        drawn = [self.note, *sides, *self.charts.outputs, self.table]
        self.both.click(self._both, self.chosen, drawn, **QUIET)
        agreed = "(table, _, ...filters) => WorkbenchPage.confirmed(table, ...filters)"
        asked = [self.chosen, self.condemned, *listing]
        self.delete.click(self._delete, asked, [self.chosen, self.note], js=agreed, **QUIET)

    # ---- handlers

    def _list(self, search: str, kind: str, order: str) -> Any:
        """The runs that are looked for; those of them that are ticked stay so, which the browser sees to."""
        if self.host.limits.public:
            return gr.skip()
        found = self.host.store.list(kind=None if kind == EVERY else kind, search=search or "", order=order)
        lines = [
            {"id": run.id, "when": words.when(run.created), "kind": run.kind, "title": run.title, "models": run.models,
             "decoders": ", ".join(run.decoders)}
            for run in found
        ]  # fmt: skip
        return {"rows": lines}

    def _open(self, table: dict[str, Any] | None) -> Updates:
        ids = chosen(table)
        if len(ids) != 1:
            return {self.note: words.note("Tick one run to open it.", "alert")}
        return self._shown(lambda: self.host.store.get(ids[0]))

    def _import(self, path: str | None) -> Updates:
        if path is None:
            return {self.note: words.note("No file was given.", "alert")}
        return self._shown(lambda: self.host.store.add(imports.read(Path(path).read_bytes())))

    def _shown(self, find: Callable[[], Run]) -> Updates:
        try:
            return {**self.show(find()), self.note: ""}
        except InputError as error:
            return {self.note: words.note(str(error), "alert")}

    def show(self, run: Run) -> Updates:
        """The run in the tab of its kind. Raises InputError if there is none."""
        if run.kind not in self.shown_in:
            raise InputError(f"There is no tab for runs of the kind {run.kind!r} here.")
        tab = self.shown_in[run.kind]
        return {**tab.show(run), self._tabs: gr.update(selected=tab.id)}

    def _both(self, table: dict[str, Any] | None) -> Updates:
        ids = chosen(table)
        if len(ids) != 2:
            return {self.note: words.note("Tick two runs to compare them.", "alert")}
        try:
            runs = [self.host.store.get(id) for id in ids]
        except InputError as error:
            return {self.note: words.note(str(error), "alert")}
        kinds = [run.kind for run in runs]
        if kinds[0] != kinds[1]:
            why = f"One is a {kinds[0]}, the other a {kinds[1]}: their figures count different things. Tick two of one kind."
            return {self.note: words.note(why, "alert")}
        updates: Updates = {self.note: "", self.table: "", **self.charts.clear()}
        for side, run, title, panels in zip(SIDES, runs, self.titles, self.strips, strict=True):
            drawn = strip.run_panels(run) if run.kind == Comparison.kind else []
            updates |= {title: words.heading(side, run), panels: strip.view(drawn, run.id)}
        figures = side_by_side(*runs)
        if runs[0].kind == Comparison.kind:
            sided = [row.named(side) for side, run in zip(SIDES, runs, strict=True) for row in rows(run.results)]
            return {**updates, **self.charts.show(sided, figures)}
        if not figures.rows:
            return {**updates, self.note: words.note("These runs share no decoder at the same batch size and scheme.")}
        return {**updates, self.table: markup(figures)}

    def _delete(self, _: Any, condemned: Any, *filters: str) -> tuple[Any, str]:
        """Delete those that the visitor agreed to."""
        ids = chosen({"chosen": condemned})
        try:
            for id in ids:
                self.host.store.delete(id)
        except InputError as error:
            return self._list(*filters), words.note(str(error), "alert")
        count = f"Deleted {counted(len(ids), 'run')}."
        return self._list(*filters), words.note(count) if ids else ""


def chosen(table: Any) -> list[str]:
    """The ids that are ticked; a client may send anything."""
    ids = table.get("chosen") if isinstance(table, dict) else None
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []
