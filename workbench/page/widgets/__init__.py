"""All that works around Gradio."""

from gradio import component_meta

from workbench.page.widgets import tracebacks

# Gradio would write a type stub beside each file with components: into a user's site-packages, where uninstalling leaves it.
component_meta.create_or_modify_pyi = lambda component_class, class_name, events: None
tracebacks.shorten()
