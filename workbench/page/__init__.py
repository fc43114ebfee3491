"""The browser interface; no other room imports gradio."""

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # before Gradio is imported
