"""The workbench in the browser: `python app.py`. This is also what a Hugging Face Space runs."""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported

from workbench.page.host import Host
from workbench.page.layout import build, launch_options

host = Host()
demo = host.thread.submit(build, host).result()  # whatever computes does so in the thread that decodes, see steady.py

if __name__ == "__main__":
    host.open()
    demo.launch(**launch_options(host))
