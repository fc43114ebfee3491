"""All that works around Gradio."""
