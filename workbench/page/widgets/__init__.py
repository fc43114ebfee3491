"""All that works around Gradio."""

from gradio import component_meta

from workbench.page.widgets import repairs

# Gradio would write a type stub beside each file with components, in a user's site-packages, where
# it would stay when this project is uninstalled.
component_meta.create_or_modify_pyi = lambda component_class, class_name, events: None
repairs.install()
