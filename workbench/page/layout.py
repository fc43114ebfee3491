"""The table of contents of the interface."""

from copy import copy
from functools import cache
from importlib.util import find_spec
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from decoders import InputError
from workbench.page.api import add_endpoint
from workbench.page.downloads import export_route
from workbench.page.first_paint import Completing, FirstPaint, nothing_asked
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.tabs.about import AboutTab
from workbench.page.tabs.batch import BatchTab
from workbench.page.tabs.compare import CompareTab
from workbench.page.tabs.draw import DrawTab
from workbench.page.tabs.experiments import ExperimentsTab
from workbench.page.tabs.runs import RunsTab, StudyTab
from workbench.page.tabs.theory import TheoryTab
from workbench.page.widgets.messages import Updates
from workbench.runs.recorded import Recording, recorded, recordings
from workbench.show import web
from workbench.studies import links
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw

BUILT = "Built with Llama"  # the licence of the models that wrote the embedded pair's stories asks for it
HERE = "nothing you type leaves this machine"

THEME = gr.themes.Default(
    primary_hue=gr.themes.colors.blue,
    neutral_hue=gr.themes.colors.slate,
    radius_size=gr.themes.sizes.radius_lg,
    font=["ui-sans-serif", "system-ui", "sans-serif"],
    font_mono=["ui-monospace", "monospace"],
).set(  # Gradio's greys and blues are too pale to read: AA asks for a contrast of 4.5
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
    checkbox_border_color="*neutral_500",  # a box that is not ticked could hardly be seen: what is drawn needs a contrast of 3
    checkbox_border_color_dark="*neutral_400",
    button_cancel_background_fill="#b91c1c",
    button_cancel_background_fill_hover="#991b1b",
)


def build(host: Host) -> gr.Blocks:
    """The whole page. Launch it with `launch_options(host, page)`."""
    with gr.Blocks(title=words.TITLE, analytics_enabled=False) as page:
        gr.HTML(words.header(), elem_id="header")
        notice = gr.HTML(visible=False, elem_id="notice", elem_classes="wb-note")
        with gr.Tabs(overflow_behavior="wrap") as tabs:
            compare = CompareTab(host)
            draws = DrawTab(host, compare)
            batch = BatchTab(host, compare)
            ExperimentsTab(host, compare.pairs.choice)
            studies: dict[str, StudyTab] = {Comparison.kind: compare, Batch.kind: batch, Draw.kind: draws}
            runs = RunsTab(host, studies, tabs)
            TheoryTab(host)
            AboutTab()
        gr.HTML(BUILT if host.limits.public else f"{BUILT} · {HERE}", elem_id="footer", elem_classes="wb-note")
        add_endpoint(host)

        @cache
        def drawn(id: str) -> Updates:
            return runs.show(host.store.get(id))

        def beforehand(recording: Recording) -> Updates:
            """What a recorded run shows: it never changes, so it is drawn once. Copies, as Gradio takes values out of updates."""
            found = drawn(recording.run.id)
            return {part: copy(update) if isinstance(update, dict) else update for part, update in found.items()}

        def opened(request: gr.Request) -> dict[Any, Any]:
            """What the address asks for: a past run, a study, or nothing; and whether there are models at all."""
            query = dict(request.query_params)
            updates, faults = compare.greet(), [host.fault] if host.fault else []
            try:
                if "run" in query:
                    known = recorded(query["run"])
                    updates |= beforehand(known) if known else runs.show(host.store.get(query["run"]))
                elif nothing_asked(query):
                    updates |= {**beforehand(recordings()[0]), **compare.unasked}
                elif link := links.from_query(query):
                    updates |= {**studies[link.kind].fill(link.data), tabs: gr.update(selected=studies[link.kind].id)}
                    faults += link.faults
            except InputError as error:
                faults.append(str(error))
            notes = "".join(words.note(fault, "alert") for fault in faults)
            return {**updates, **({notice: gr.update(value=notes, visible=True)} if faults else {})}

        shown = [notice, tabs, *compare.outputs, *batch.outputs, *draws.outputs]
        opening = page.load(opened, None, shown, **compare.noted.filling)
        buttons = [compare.runner.run, batch.runner.run, draws.runner.run]
        opening.then(
            None, notice, [*buttons, notice], js="WorkbenchPage.ready", api_visibility="private"
        )  # whatever happened in `opened`
        for button, recording in zip(compare.gallery, recordings(), strict=True):
            button.click(lambda found=recording: beforehand(found), None, shown, **compare.noted.filling)
        for first in recordings()[:1]:
            beforehand(first)  # now, and not while the first visitor waits
    page.queue(max_size=host.limits.queue_size)
    return page


def launch_options(host: Host, page: gr.Blocks) -> dict[str, Any]:
    return {
        "theme": THEME,
        "css_paths": web.WEB / "page.css",
        "ssr_mode": False,
        "run_history": False,
        "footer_links": ["api", "settings"],
        "show_error": True,
        "mcp_server": find_spec("mcp") is not None,  # `pip install "gradio[mcp]"` makes /compare a tool
        "app_kwargs": {
            "routes": [export_route(host.store)],
            "middleware": [Middleware(Completing, paint=FirstPaint(host, page))],
        },
    }
