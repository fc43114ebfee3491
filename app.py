"""The workbench in the browser: `python app.py`. This is also what a Hugging Face Space runs."""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported

from workbench.host import Host
from workbench.layout import build, launch_options

host = Host()
demo = build(host)

if __name__ == "__main__":
    host.open()
    demo.launch(**launch_options(host))
