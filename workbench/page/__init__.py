"""The browser interface; no other room imports gradio."""

import os

# Before Gradio is imported.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
