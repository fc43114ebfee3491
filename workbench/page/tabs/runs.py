"""Past runs of every kind: find one, open it, compare two, delete, import."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import gradio as gr

from decoders import InputError
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.components import RunTable
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import NotedForm, Updates
from workbench.runs import imports
from workbench.runs.estimates import Fastest, label
from workbench.runs.record import Run
from workbench.show import differences
from workbench.show.quantities import significant, times
from workbench.show.spread import UNSURE
from workbench.show.tables import markup, side_by_side
from workbench.studies.comparison import Comparison
from workbench.studies.schemes import BASELINE
from workbench.studies.text import counted

EVERY = "all"
NONE = "No run is kept yet. Press Run under Compare, or Measure under Batch: each run is listed here when it is done."
NOT_FOUND = "No run has all of these words and this kind."
PUBLIC = "On a shared machine runs are not listed: each is found by its own link."


class StudyTab(Protocol):
    """A tab that shows the runs of one kind."""

    id: str
    noted: NotedForm

    @property
    def outputs(self) -> list[Any]: ...

    def show(self, run: Run) -> Updates: ...

    def fill(self, data: Any) -> Updates: ...


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
                placeholder="title, decoder, model, id",
                elem_id="search-runs",
                scale=3,
            )
            kinds = [EVERY, *self.shown_in]
            self.kind = gr.Dropdown(kinds, value=EVERY, label="Kind", elem_id="kind-of-runs", min_width=140)
        self.chosen = RunTable(elem_id="past-runs", visible=listed)
        self.condemned = gr.JSON(visible="hidden")  # filled in the browser, if the visitor agrees to delete
        with gr.Row():
            self.open = gr.Button("Open", variant="primary", elem_id="open-run", visible=listed)
            self.both = gr.Button("Compare two", elem_id="compare-two", visible=listed)
            self.delete = gr.Button("Delete", variant="stop", elem_id="delete-run", visible=listed)
            self.upload = gr.UploadButton("Import a JSON file", file_types=[".json"], elem_id="import-run")
        self.note = gr.HTML(elem_id="runs-note", elem_classes="wb-note")
        self.compared = gr.HTML(elem_id="compared", elem_classes="wb-note")

    def _wire(self) -> None:
        listing: list[Any] = [self.search, self.kind]
        changed = (each.change for each in listing)
        gr.on([self.tab.select, *changed], self._list, listing, self.chosen, trigger_mode="always_last", **QUIET)
        outputs = [self._tabs, self.note, *(part for tab in self.shown_in.values() for part in tab.outputs)]
        filling = next(iter(self.shown_in.values())).noted.filling
        opened = self.open.click(self._open, self.chosen, outputs, **filling)
        imported = self.upload.upload(self._import, self.upload, outputs, **filling)
        for shown in (opened, imported):
            shown.then(None, None, None, js="() => window.scrollTo({top: 0})", api_visibility="private")
        both = self.both.click(self._both, self.chosen, [self.note, self.compared], **QUIET)
        both.then(None, None, None, js="() => WorkbenchPage.reveal('compared')", api_visibility="private")
        agreed = "(table, _, ...filters) => WorkbenchPage.confirmed(table, ...filters)"
        asked = [self.chosen, self.condemned, *listing]
        self.delete.click(self._delete, asked, [self.chosen, self.note], js=agreed, **QUIET)

    # ---- handlers

    def _list(self, search: str, kind: str) -> Any:
        """The runs that are looked for, newest first. The browser sorts them otherwise, and keeps those ticked that are."""
        if self.host.limits.public:
            return gr.skip()
        found = self.host.store.list(kind=None if kind == EVERY else kind, search=search or "")
        lines = [
            {"id": run.id, "when": words.when(run.created), "kind": run.kind, "title": run.title, "models": run.models,
             "decoders": ", ".join(map(label, run.decoders)), "best": best(run.fastest), "speed": run.fastest and run.fastest.speed}
            for run in found
        ]  # fmt: skip
        return {"rows": lines, "empty": NOT_FOUND if search or kind != EVERY else NONE}

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

    def _both(self, table: dict[str, Any] | None) -> tuple[str, str]:
        """What stands below the list: nothing, or two runs compared; the first one ticked is A."""
        ids = chosen(table)
        if len(ids) != 2:
            return words.note("Tick two runs to compare them.", "alert"), ""
        try:
            a, b = (self.host.store.get(id) for id in ids)
        except InputError as error:
            return words.note(str(error), "alert"), ""
        if a.kind != b.kind:
            why = (
                f"One is a {a.kind}, the other a {b.kind}: their figures count different things. Tick two of one kind."
            )
            return words.note(why, "alert"), ""
        heads = "".join(words.heading(side, run) for side, run in zip(differences.SIDES, (a, b), strict=True))
        if a.kind == Comparison.kind:
            return "", heads + differences.comparisons(a, b)
        figures = side_by_side(a, b)
        if not figures.rows:
            return words.note(
                "These runs share no decoder at the same batch size and scheme."
            ), heads + differences.settings(a, b)
        return "", heads + differences.settings(a, b) + markup(figures)

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


def best(found: Fastest | None) -> str:
    """The fastest decoder of a run in words."""
    if found is None:
        return ""
    sure = "" if found.sure else UNSURE
    more = f" · {sure}{times(found.speed / found.greedy)} greedy" if found.greedy and found.decoder != BASELINE else ""
    batch = f" · in a batch of {found.batch_size}" if found.batch_size > 1 else ""
    stopped = " · stopped" if found.stopped else ""
    return f"{label(found.decoder)}: {sure}{significant(found.speed)} tokens/s{more}{batch}{stopped}"


def chosen(table: Any) -> list[str]:
    """The ids that are ticked; a client may send anything."""
    ids = table.get("chosen") if isinstance(table, dict) else None
    return [id for id in ids if isinstance(id, str)] if isinstance(ids, list) else []
