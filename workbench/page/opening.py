"""Opening the page: from app.py, which a Space runs, or from the command `decoding-workbench`."""

import sys

import gradio as gr

from decoders import InputError
from workbench.page.host import Host
from workbench.page.layout import build, launch_options

# A thread that decodes lets go of the interpreter in every operator of torch. By default it then
# waited 5 ms, longer than a pass, for a thread that draws.
SWITCH_SECONDS = 0.0002


def prepare() -> tuple[Host, gr.Blocks]:
    """The host and its page, which is not served yet.

    Raises:
        InputError: if the folder of past runs or a variable of the environment cannot be used
    """
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
        InputError: if the port is taken
    """
    host.open()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        page.launch(**launch_options(host, page), server_port=port)
    except OSError as error:
        taken = (
            f"Port {port} is taken"
            if port
            else "Every port from GRADIO_SERVER_PORT (7860) on is taken"
        )
        raise InputError(f"{taken}; choose another one.") from error
