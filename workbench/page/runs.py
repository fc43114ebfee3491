"""Past runs of every kind: find one, open it, compare two, delete, import."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import gradio as gr

from decoders import InputError
from decoders.errors import quoted
from workbench.kinds import registry
from workbench.page import words
from workbench.page.frame import StudyTab
from workbench.page.host import Host
from workbench.page.widgets import QUIET, READ_ONCE, Canvas, Rooms, Updates, given, room
from workbench.runs.figures import label
from workbench.runs.record import Run
from workbench.show import view
from workbench.show.tables import PLAIN, verdict
from workbench.studies.settings import counted
from workbench.studies.study import GONE

EVERY = "all"
INTRODUCTION = (
    "Every finished run is kept here: open one to see its picture again, or tick two to lay them "
    "side by side."
)
LOOKED_AT = 20  # runs of the list, whose outcomes are read out of them
PUBLIC = "On a shared machine, runs are not listed; open each one by its link."


class RunsTab:
    """The tab of past runs.

    Args:
        host: the page's host
        shown_in: for each kind of run, the tab that shows it
        rooms: all tabs
    """

    def __init__(self, host: Host, shown_in: Mapping[str, StudyTab], rooms: Rooms):
        self.host, self.shown_in, self.rooms = host, shown_in, rooms
        self._outcomes = lru_cache(10 * LOOKED_AT)(self._outcome)
        with room("Runs", "runs") as self.tab:
            self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        public = self.host.limits.public
        gr.Markdown(PUBLIC if public else INTRODUCTION, elem_classes="wb-note")
        with gr.Row(visible=not public):
            self.search = gr.Textbox(
                "",
                label="Search",
                placeholder="title, decoder, model, id",
                elem_id="search-runs",
                scale=3,
            )
            self.kind = gr.Dropdown(
                [EVERY, *self.shown_in], value=EVERY, label="Kind", elem_id="kind-of-runs",
                min_width=140,
            )  # fmt: skip
        # {"rows": [{id, when, kind, title, decoders, models, asked}], "chosen": [ids],
        # "empty": a text in place of no rows}
        self.chosen = Canvas(
            "WorkbenchPage.runs(root, props, trigger);", elem_id="past-runs", visible=not public
        )
        # Filled in the browser, if the visitor agrees to delete.
        self.condemned = gr.JSON(visible="hidden")
        with gr.Row():
            self.open = gr.Button("Open", variant="primary", elem_id="open-run", visible=not public)
            self.both = gr.Button("Compare two", elem_id="compare-two", visible=not public)
            self.delete = gr.Button(
                "Delete", variant="stop", elem_id="delete-run", visible=not public
            )
            self.upload = gr.UploadButton(
                "Import a JSON file", file_types=[".json"], elem_id="import-run"
            )
        self.note = gr.HTML(elem_id="runs-note", elem_classes="wb-note")
        self.compared = gr.HTML(elem_id="compared", elem_classes="wb-note")

    def _wire(self) -> None:
        listing: list[Any] = [self.search, self.kind]
        gr.on(
            [self.tab.select, *(each.change for each in listing)],
            self._list,
            listing,
            self.chosen,
            trigger_mode="always_last",
            **QUIET,
        )
        outputs = [
            *self.rooms.outputs,
            self.note,
            *(part for tab in self.shown_in.values() for part in tab.outputs),
        ]
        filling = next(iter(self.shown_in.values())).noted.filling
        up, reveal = "() => window.scrollTo({top: 0})", "() => WorkbenchPage.reveal('compared')"
        for handler, js in (
            (self.open.click(self._open, self.chosen, outputs, **filling), up),
            (self.upload.upload(self._import, self.upload, outputs, **filling, **READ_ONCE), up),
            (self.both.click(self._both, self.chosen, [self.note, self.compared], **QUIET), reveal),
        ):
            handler.then(None, None, None, js=js, api_visibility="private")
        self.delete.click(
            self._delete, [self.chosen, self.condemned, *listing], [self.chosen, self.note],
            js="(table, _, ...filters) => WorkbenchPage.confirmed(table, ...filters)", **QUIET,
        )  # fmt: skip

    # ---- handlers

    def _list(self, search: str, kind: str) -> Any:
        """The matching runs, newest first; the browser sorts them otherwise and keeps the ticks."""
        if self.host.limits.public:
            return gr.skip()
        try:
            runs = self.host.store.list(kind=None if kind == EVERY else kind, search=search or "")
        except InputError as error:
            return {"rows": [], "empty": str(error)}
        lines = [
            {
                "id": run.id,
                "when": words.when(run.created),
                "kind": run.kind,
                "title": run.title,
                "models": run.models,
                "decoders": ", ".join(map(label, run.decoders)),
                "asked": run.asked,
                **(self._outcomes(run.id, *run.decoders) if place < LOOKED_AT else {}),
            }
            for place, run in enumerate(runs)
        ]
        empty = "No run matches these words and this kind."
        if not search and kind == EVERY:
            empty = (
                "There are no runs yet. Press Run under Compare, or Measure under Batch; each run "
                "is listed here when it is done."
            )
        return {"rows": lines, "empty": empty}

    def _outcome(self, id: str, *decoders: str) -> dict[str, str]:
        """The verdict of a comparison, and the end of its picture in small: a fate for each token.

        Args:
            id: the run
            decoders: its decoders so far
        """
        try:
            run = self.host.store.get(id)
        except InputError:
            return {}  # the list names it all the same
        if run.kind != registry.UNNAMED:
            return {}
        guessing = [r for r in run.results if r.alone.tokens and r.decoder not in PLAIN]
        fates = [token.fate for r in guessing[:1] for token in r.alone.tokens]
        return {"verdict": verdict(run, settled=False), "fates": " ".join(map(str, fates))}

    def _open(self, table: dict[str, Any] | None, request: gr.Request) -> Updates:
        ids = chosen(table)
        if len(ids) != 1:
            return {self.note: words.note("Tick one run to open it.", "alert")}
        return self._shown(lambda: self.host.store.get(ids[0]), request)

    def _import(self, data: dict[str, Any] | None, request: gr.Request) -> Updates:
        def found() -> Run:
            if (file := given(data)) is None:
                raise InputError("No file was chosen.")
            return self.host.store.add(registry.read(file.content))

        return self._shown(found, request)

    def _shown(self, find: Callable[[], Run], request: gr.Request) -> Updates:
        try:
            return {**self.replace(self.show(find()), request), self.note: ""}
        except InputError as error:
            return {self.note: words.note(str(error), "alert")}

    def show(self, run: Run) -> Updates:
        """Updates that show a run in the tab of its kind.

        Raises:
            InputError: if there is no tab for it
        """
        if run.kind not in self.shown_in:
            says = f"There is no tab for runs of the kind {quoted(run.kind)} here."
            raise InputError(GONE.get(run.kind, says))
        tab = self.shown_in[run.kind]
        return {**tab.show(run), **self.rooms.select(tab.id)}

    def replace(self, updates: Updates, request: gr.Request) -> Updates:
        """The updates; no more is shown of the visitor's own studies whose results they replace."""
        for tab in self.shown_in.values():
            if any(part in updates for part in tab.results.outputs):
                self.host.leave((request.session_hash, tab.runner.name))
        return updates

    def _both(self, table: dict[str, Any] | None) -> tuple[str, str]:
        """The text below the list, and two runs compared; the first one ticked is A."""
        ids = chosen(table)
        if len(ids) != 2:
            return words.note("Tick two runs to compare them.", "alert"), ""
        try:
            a, b = (self.host.store.get(id) for id in ids)
        except InputError as error:
            return words.note(str(error), "alert"), ""
        if a.kind != b.kind:
            return words.note(
                f"One is a {a.kind}, the other a {b.kind}: their figures count different things. "
                "Tick two of the same kind.",
                "alert",
            ), ""
        heads = "".join(
            words.heading(side, run) for side, run in zip(view.SIDES, (a, b), strict=True)
        )
        return "", f'<div class="wb-versus">{heads}{view.view_of(a.kind).beside(a, b)}</div>'

    def _delete(self, _: Any, condemned: Any, *filters: str) -> tuple[Any, str]:
        if self.host.limits.public:  # a client made up this call
            return gr.skip(), words.note(PUBLIC, "alert")
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
