"""The workbench in the browser: `python app.py`. This is also what a Hugging Face Space runs."""

import os
import sys

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported

from decoders import InputError
from workbench.page.host import Host
from workbench.page.layout import build, launch_options

try:
    host = Host()
except InputError as error:
    sys.exit(str(error))
demo = host.device.call(
    build, host
)  # whatever computes does so in the thread that decodes, see workbench/measuring/device.py

if __name__ == "__main__":
    host.open()
    demo.launch(**launch_options(host))
