"""The choice of decoders: a box for each, in families, with its name and summary."""

from collections.abc import Iterable
from typing import Any

import gradio as gr

from decoders import catalog
from workbench.page.widgets.handlers import Updates, Values
from workbench.runs.estimates import label
from workbench.show.families import FAMILIES

WORDS = {2: "two", 5: "five", 15: "fifteen", 16: "sixteen"}


class DecoderChoice:
    """A group of boxes for each family.

    Args:
        usual: the decoders that are ticked at first
        elem_id: of the row of groups
    """

    def __init__(self, usual: Iterable[str], elem_id: str):
        self.usual, self.elem_id = list(usual), elem_id
        self.groups: list[gr.CheckboxGroup] = []

    def lay_out(self) -> None:
        with gr.Row(elem_id=self.elem_id, elem_classes="families"):
            self.groups = [
                gr.CheckboxGroup(
                    # The name, and below it the summary: the style sheet tells the lines apart.
                    [(f"{label(name)}\n{catalog[name].summary}", name) for name in family.decoders],
                    value=[name for name in family.decoders if name in self.usual],
                    label=family.title,
                    info=family.help,
                    elem_id=f"{self.elem_id}-{family.name}",
                    elem_classes="family",
                )
                for family in FAMILIES
            ]
        with gr.Row(elem_classes="chips"):
            for names in (self.usual, list(catalog)):
                which = "All" if len(names) == len(catalog) else "The"
                boxes = [[name for name in family.decoders if name in names] for family in FAMILIES]
                gr.Button(
                    f"{which} {WORDS.get(len(names), len(names))}",
                    size="sm",
                    elem_classes="chip",
                    elem_id=f"{self.elem_id}-{len(names)}",
                ).click(None, None, self.groups, js=f"() => {boxes}", api_visibility="private")

    @property
    def first(self) -> gr.CheckboxGroup:
        """The group at which a message about the whole choice stands."""
        return self.groups[0]

    def chosen(self, values: Values) -> list[str]:
        """The ticked decoders, in the order of the catalog."""
        ticked = {name for group in self.groups for name in values[group]}
        return [name for name in catalog if name in ticked]

    def filled(self, names: Iterable[str]) -> Updates:
        """Updates that tick these decoders; names that the catalog lacks are left out."""
        names = list(names)
        return {
            group: [name for name in family.decoders if name in names]
            for group, family in zip(self.groups, FAMILIES, strict=True)
        }

    def follow(self, folds: dict[str, Any]) -> None:
        """Show the folds of the ticked decoders, and no others."""
        for group in self.groups:
            group.change(
                None, self.groups, list(folds.values()), api_visibility="private",
                js=f"(...chosen) => WorkbenchPage.unfold({list(folds)})(chosen.flat())",
            )  # fmt: skip
