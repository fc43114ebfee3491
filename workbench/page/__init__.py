"""The browser interface; no other room imports gradio."""
