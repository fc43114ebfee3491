"""The browser interface; only here gradio."""
