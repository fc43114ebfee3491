"""Opening and serving the page: from app.py, which a Space runs, or from `decoding-workbench`."""

import sys
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from decoders import InputError
from decoders.errors import quoted
from workbench.page import widgets
from workbench.page.api import jobs
from workbench.page.host import Host
from workbench.page.layout import build
from workbench.runs.record import LARGEST_FILE
from workbench.runs.store import Dataset, RunStore
from workbench.show import view, web

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
    host = Host()
    host.store.dataset = Dataset.from_environment(host.store.path.with_name("uploads"))
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
    """The options of `page.launch`."""
    tools = widgets.tools(jobs(host), host.limits.queue_size)
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
        "app_kwargs": {**tools, "routes": [*tools["routes"], export_route(host.store)]},
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
