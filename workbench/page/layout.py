"""The whole page: name, tabs, endpoints, theme, and the handler of its address.

It is opened and served from app.py, which a Space runs, or from `decoding-workbench`.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from decoders import InputError, smollm2
from decoders.errors import quoted, refuse
from workbench.kinds import registry
from workbench.models.presets import HEADED, PairChoice
from workbench.page import words
from workbench.page.frame import StudyTab
from workbench.page.host import Host
from workbench.page.runs import RunsTab
from workbench.page.theory import TheoryTab
from workbench.page.widgets import QUIET, Canvas, Rooms, Updates, room, tools
from workbench.runs.record import LARGEST_FILE
from workbench.runs.store import Recording, RunStore, recorded, recordings
from workbench.show import quantities, view, web

INTRODUCTION = """
## What you see

Every text is the same large model's continuation of the same prompt, each time with another
**decoder**, a rule for choosing tokens. Some decoders let a small *draft* model write a few tokens,
which the large *target* model then tests in one pass. The colour and the underline of a token show
where it came from; click it to see the probabilities that decided. In the picture, **Play** goes
through the rounds, and below the text one round is shown up close, with its guesses or the tree of
tokens that were tried.

Decoders run one after another, so that each is timed alone. The seconds are those of the models and
the decoder, without drawing. Speeds depend on the machine, so every run and every export names the
machine that it was measured on.

**Draws** continues one prompt with a hundred seeds and compares the draws with the large model's
probabilities. **Experiments** runs plans over many prompts. **Runs** keeps all measurements;
**Theory** has the papers' formulas with sliders.

**Batch** decodes many prompts at once. In each round, every prompt accepts a different number of
draft tokens. A framework with aligned tensors pads inputs and caches to the longest of the batch,
and computes the padding, too; the engine here pads neither. This tab measures what padding costs,
for inputs and caches separately. The text does not change.
"""


def about_tab() -> None:
    with room("About", "about", "about"):
        gr.Markdown(INTRODUCTION)
        rows = [f"| {each.label} | {each.help} |\n" for each in quantities.QUANTITIES]
        heads = "| figure | what it counts |\n| --- | --- |\n"
        gr.Markdown("## The figures\n\n" + heads + "".join(rows))
        gr.Markdown(
            "## Licences\n\nSmolLM2-135M-Instruct is under "
            f"[Apache 2.0](https://huggingface.co/{smollm2.HUB}); its head, and the embedded story "
            "models, are under the Llama 3.1 Community License."
        )


# The period of the search for files that nobody read, and their age when they are deleted.
UNREAD_SECONDS = (300, 3600)


def build(host: Host) -> gr.Blocks:
    """The whole page. Launch it with `workbench.page.layout.launch_options(host)`."""
    with gr.Blocks(title=words.TITLE, analytics_enabled=False, delete_cache=UNREAD_SECONDS) as page:
        gr.HTML(words.NAME, elem_id="header")
        notice = gr.HTML(visible=False, elem_id="notice", elem_classes="wb-note")
        # The run during which the page before this one was left, see page.js.
        left = gr.Textbox(visible="hidden")
        # It tells the browser {go: the prefix of a tab whose study runs at once}; the browser
        # answers a step back or forward with {query: what the address asks for}, as the event
        # `submit`, and asks for a tab with {tab: its name}, as the event `select`.
        address = Canvas(
            "WorkbenchAddress.talk(props, trigger);", visible="hidden", elem_id="address"
        )
        pair = gr.State(host.first)
        parts = [kind.on_page for kind in registry.KINDS.values()]
        with gr.Tabs(overflow_behavior="wrap", elem_id="rooms") as tabs:
            forms = [part.TAB for part in parts if hasattr(part, "TAB")]
            made = [form(host, pair) for form in forms if not getattr(form, "in_lab", False)]
            # What is measured over many prompts, and the papers' formulas.
            with room("Lab", "lab", "lab") as lab, gr.Tabs(overflow_behavior="wrap") as inner:
                made += [form(host, pair) for form in forms if getattr(form, "in_lab", False)]
                TheoryTab(host)
            rooms = Rooms(tabs, lab, inner)
            studies = {tab.study.kind: tab for tab in made if isinstance(tab, StudyTab)}
            runs = RunsTab(host, studies, rooms)
            visits = _Visits(host, studies, runs, rooms, notice, address)
            about_tab()
        stay = "nothing you type leaves this machine"
        if host.limits.public:
            stay = "runs are kept until this Space restarts; download what you want to keep"
        # The licence of the models that wrote the embedded pair's stories asks for "Built with".
        gr.HTML(
            f'<a href="?tab=about" data-tab="about">About</a> · Built with Llama · {stay}',
            elem_id="footer",
            elem_classes="wb-note",
        )
        for job in jobs(host):
            gr.api(job, api_name=job.__name__, concurrency_id="device", concurrency_limit=1)
        shown = [
            notice,
            address,
            *rooms.outputs,
            *(part for tab in studies.values() for part in tab.outputs),
        ]
        filling = visits.first.noted.filling
        # `then`, whatever happened in `opened`: what was filled is noted before it can be run.
        opened = page.load(visits.opened, left, shown, js="WorkbenchPage.left", **filling)
        first = visits.first
        ready = [first.runner.run, first.introduction, first.prompt]
        opened.then(**first.noted.noting).then(visits.ready, pair, ready, **QUIET).then(
            None, None, None, js="WorkbenchAddress.ready", api_visibility="private"
        )
        address.submit(visits.travelled, address, shown, trigger_mode="always_last", **filling)
        address.select(rooms.enter, address, rooms.outputs, trigger_mode="always_last", **QUIET)
        for recording in recordings()[:1]:
            visits.beforehand(recording)  # now, and not while the first visitor waits
    page.queue(max_size=host.limits.queue_size)
    return page


def jobs(host: Host) -> Iterator[Callable[..., Any]]:
    """All jobs: functions with one JSON result, whose last item counts if they yield several.

    Their docstrings are their documentation, for programs and agents. Each parameter must stand on
    one line there; the lines of `Returns` are joined with commas.
    """
    for kind in registry.KINDS.values():
        if hasattr(part := kind.on_page, "endpoints"):
            yield from part.endpoints(host)


@dataclass
class _Visits:
    """What the page shows to a visitor who comes with an address."""

    host: Host
    studies: Mapping[str, StudyTab]
    runs: RunsTab
    rooms: Rooms
    notice: gr.HTML
    address: Canvas

    def __post_init__(self) -> None:
        self.first: Any = self.studies[registry.UNNAMED]  # the tab that the page opens with
        self.drawn = cache(lambda id: self.runs.show(self.host.store.get(id)))

    def beforehand(self, recording: Recording) -> Updates:
        """Updates for a recorded run, which is drawn once, because it never changes."""
        # Copies, because Gradio takes values out of updates.
        updates = {
            part: copy(update) if isinstance(update, dict) else update
            for part, update in self.drawn(recording.run.id).items()
        }
        own = self.studies[recording.run.kind].form.own
        pair = self.host.device.keeper.peek(self.host.first)
        headed = self.host.first.preset in HEADED if pair is None else pair.head is not None
        if not headed and own in updates:
            # Run is pressed on another pair than the recorded one: what only a head can draft, its
            # draft model does.
            updates[own]["value"] = {**updates[own]["value"], "own": {}}
        return updates

    def opened(self, left: str | None, request: gr.Request) -> dict[Any, Any]:
        """Updates for an address, which asks for a past run, a study or nothing, and for a tab.

        A notice tells about missing models, and about a run that was left.
        """
        query, host = dict(request.query_params), self.host
        faults = [host.fault] if host.fault else []
        updates = self._asked(query, faults, left is None)
        # The other tabs come filled; in the first one, it is the browser that notes what is filled.
        for tab in self.studies.values():
            if tab is not self.first:
                updates[tab.runner.run] = gr.update(interactive=True)
        updates |= self.rooms.select(query.get("tab", ""))
        notes = words.faults(faults)
        notes += "" if left is None else words.left(left if host.store.has(left) else None)
        return {**updates, **self._told(notes)}

    def ready(self, choice: PairChoice) -> Updates:
        run = {self.first.runner.run: gr.update(interactive=True)}
        return {**run, **self.first.introduce(choice)}

    def travelled(self, told: Mapping[str, Any], request: gr.Request) -> Updates:
        """Updates for a step back or forward to what an address asked for, or for an example."""
        faults: list[str] = []
        query = dict(parse_qsl(str(told.get("query", ""))))
        updates = self.runs.replace(self._asked(query, faults, False), request)
        for part in self.rooms.outputs:  # the browser asks for the tab by itself
            updates.pop(part, None)
        return {
            **updates,
            self.notice: gr.update(visible=False),
            **self._told(words.faults(faults)),
        }

    def _told(self, notes: str) -> Updates:
        return {self.notice: gr.update(value=notes, visible=True)} if notes else {}

    def _asked(self, query: Mapping[str, str], faults: list[str], runs: bool) -> Updates:
        """Updates that show what an address asks for; where that fails, the example, greyed.

        Args:
            query: the parameters of the address
            faults: gets a sentence for each part of it that cannot be used
            runs: whether a study that it asks for runs at once
        """
        try:
            if "run" in query:
                known = recorded(query["run"])
                if known is None:
                    return self.runs.show(self.host.store.get(query["run"]))
                return self.beforehand(known)
            if link := registry.from_query(query):
                tab = self.studies[link.kind]
                faults += link.faults
                asked = link.data.get("settings", {}).get("decoders", ())
                faults += tab.form.missing(asked)
                runs = runs and tab.runs_by_link and not self.host.fault
                waits = "The link has filled the form. Press Run to see what it gives."
                return {
                    **tab.fill(link.data), tab.filled: True, **self.rooms.select(tab.id),
                    **({self.address: {"go": tab.prefix}} if runs else {}),
                    tab.runner.progress: "" if runs else words.note(waits),
                }  # fmt: skip
        except InputError as error:
            faults.append(f"{error} {words.INSTEAD}" if recordings() else str(error))
        if not recordings():
            return {}
        # Nobody asked for it: no outcome, and not its address.
        unasked = {self.first.runner.progress: "", self.first.results.kept.run_id: ""}
        return {**self.beforehand(recordings()[0]), **unasked}


# A thread that decodes lets go of the interpreter in every operator of torch. By default it then
# waited 5 ms, longer than a pass, for a thread that draws.
SWITCH_SECONDS = 0.0002
TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html"}
THEME = gr.themes.Default(
    primary_hue=gr.themes.colors.blue,
    neutral_hue=gr.themes.colors.slate,
    radius_size=gr.themes.sizes.radius_lg,
    font=["ui-sans-serif", "system-ui", "sans-serif"],
    font_mono=["ui-monospace", "monospace"],
).set(
    # Gradio's greys and blues are too pale to read: AA asks for a contrast of 4.5.
    body_text_color_subdued="*neutral_600",
    body_text_color_subdued_dark="*neutral_300",
    block_info_text_color="*neutral_600",
    block_info_text_color_dark="*neutral_300",
    link_text_color="*primary_700",
    link_text_color_dark="*primary_300",
    input_placeholder_color="*neutral_500",
    input_placeholder_color_dark="*neutral_400",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
    button_primary_background_fill_dark="*primary_600",
    button_primary_background_fill_hover_dark="*primary_700",
    # A box that is not ticked could hardly be seen: AA asks for a contrast of 3 for graphics.
    checkbox_border_color="*neutral_500",
    checkbox_border_color_dark="*neutral_400",
    button_cancel_background_fill="#b91c1c",
    button_cancel_background_fill_hover="#991b1b",
)


def prepare() -> tuple[Host, gr.Blocks]:
    """The host and its page, which is not served yet.

    Raises:
        InputError: if the folder of past runs or a variable of the environment cannot be used
    """
    gone = "give the Space persistent storage, and set WORKBENCH_DATA to a folder on it."
    refuse((os.environ.get("WORKBENCH_RUNS"), f"WORKBENCH_RUNS is gone: {gone}"))
    host = Host()
    # In the thread that computes, see measuring/device.py.
    return host, host.device.call(build, host)


def serve(host: Host, page: gr.Blocks, port: int | None = None) -> None:
    """Load the embedded pair and serve the page until the process is interrupted.

    Args:
        host: the host of `prepare`
        page: its page
        port: by default the first free one from GRADIO_SERVER_PORT or 7860 on

    Raises:
        InputError: if the port is taken, or the page cannot be reached from this machine
    """
    host.open()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        page.launch(**launch_options(host), server_port=port)
    except OSError as error:
        which = f"Port {port}" if port else "Every port from GRADIO_SERVER_PORT (7860) on"
        raise InputError(f"{which} is taken; choose another one.") from error
    except ValueError as error:
        if "localhost is not accessible" not in str(error):
            raise
        raise InputError(
            "The page does not hear itself at its own address within three seconds; if there is a "
            "proxy, set NO_PROXY=localhost,127.0.0.1, and if the machine is very busy, try again."
        ) from error


def launch_options(host: Host) -> dict[str, Any]:
    server = tools(jobs(host), host.limits.queue_size)
    return {
        "theme": THEME,
        "css_paths": web.WEB / "page.css",
        "head": web.head() + web.page_script(),
        "ssr_mode": False,
        "run_history": False,
        "footer_links": ["api", "settings"],
        "show_error": True,
        # Of the files that the page reads, a run is the largest.
        "max_file_size": LARGEST_FILE,
        "app_kwargs": {**server, "routes": [*server["routes"], export_route(host.store)]},
    }


def export_route(store: RunStore) -> Route:
    """The route of exports, `/export/<run>.json`, `.csv` and `.html`.

    They are made on request, so nothing piles up on the disk. It answers 404 with one sentence for
    an unknown run or format.
    """

    def export(request: Request) -> Response:
        id, _, kind = request.path_params["name"].partition(".")
        try:
            if kind not in view.WRITERS:
                raise InputError(
                    f"There is no export {quoted(kind)}: there is {', '.join(view.WRITERS)}."
                )
            text = view.WRITERS[kind](store.get(id))
        except InputError as error:
            return PlainTextResponse(str(error), status_code=404)
        return Response(
            text.encode(),
            media_type=TYPES[kind],
            headers={"Content-Disposition": f'attachment; filename="run-{id}.{kind}"'},
        )

    return Route("/export/{name}", export)
