"""The table of contents of the interface."""

from collections.abc import Iterator
from typing import Any

import gradio as gr

from decoders import InputError
from workbench import links, web
from workbench.host import Host
from workbench.panels import notes
from workbench.panels.about import AboutTab
from workbench.panels.api import add_endpoint
from workbench.panels.compare import CompareTab
from workbench.panels.runs import RunsTab
from workbench.panels.wiring import QUIET

TITLE = "Decoding Workbench"
HEADER = f"<h1>{TITLE}</h1><p>One prompt, several decoders, side by side: who is faster, and who writes the likelier text?</p>"
FOOTER = "Built with Llama · nothing you type leaves this machine"
SWEEP_SECONDS = 3600  # exports older than this are removed from Gradio's cache

THEME = gr.themes.Default(
    primary_hue=gr.themes.colors.blue,
    neutral_hue=gr.themes.colors.slate,
    radius_size=gr.themes.sizes.radius_lg,
    font=["ui-sans-serif", "system-ui", "sans-serif"],
    font_mono=["ui-monospace", "monospace"],
)


def build(host: Host) -> gr.Blocks:
    """The whole page. Launch it with `launch_options()`."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(SWEEP_SECONDS, SWEEP_SECONDS)) as page:
        gr.HTML(HEADER, elem_id="header")
        note = gr.HTML(elem_id="notice", elem_classes="wb-note")
        with gr.Tabs() as tabs:
            compare = CompareTab(host)
            RunsTab(host, compare, tabs)
            AboutTab()
        gr.HTML(FOOTER, elem_id="footer", elem_classes="wb-note")
        add_endpoint(host)

        def opened(request: gr.Request) -> dict[Any, Any]:
            """What the address asks for: a past run, settings, or nothing; and whether there are models at all."""
            query = dict(request.query_params)
            try:
                if "run" in query:
                    return {**compare.show(host.store.get(query["run"])), note: ""}
                filled = links.from_query(query)
                return {note: notes.note(host.fault, "alert") if host.fault else "", **(compare.fill(filled) if filled else {})}
            except InputError as error:
                return {note: notes.note(str(error), "alert")}

        page.load(opened, None, [note, *compare.outputs], **QUIET)
    page.queue(max_size=host.limits.queue_size)
    return page


def launch_options() -> dict[str, Any]:
    return {
        "theme": THEME,
        "css_paths": web.WEB / "page.css",
        "head": web.head(),
        "ssr_mode": False,
        "run_history": False,
        "footer_links": ["api", "settings"],
        "show_error": True,
    }
