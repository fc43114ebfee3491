"""The tabs of the page, some of which lie in another one."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.page.widgets.handlers import Updates


@dataclass(frozen=True)
class Rooms:
    """All tabs.

    Attributes:
        tabs: the tabs of the page
        lab: the one that holds others
        inner: those others
    """

    tabs: gr.Tabs
    lab: gr.Tab
    inner: gr.Tabs

    @property
    def outputs(self) -> list[Any]:
        return [self.tabs, self.inner]

    def select(self, id: str) -> Updates:
        """Updates that open the tab of this id; {} if there is none."""
        if id in _ids(self.inner):
            return {
                self.tabs: gr.update(selected=self.lab.id),
                self.inner: gr.update(selected=id),
            }
        return {self.tabs: gr.update(selected=id)} if id in _ids(self.tabs) else {}


def _ids(tabs: gr.Tabs) -> list[Any]:
    return [tab.id for tab in tabs.children if isinstance(tab, gr.Tab)]
