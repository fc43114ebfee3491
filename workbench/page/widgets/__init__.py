"""Every trick against Gradio."""
