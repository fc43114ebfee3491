"""The fields of the Experiments tab that choose a plan: the project's, or a visitor's own."""

from typing import Any

import gradio as gr

from decoders import InputError
from workbench.experiments import plan_file
from workbench.page.parts import words
from workbench.page.widgets.components import Given, GivenFile
from workbench.page.widgets.handlers import QUIET

OWN = "own"


class PlanFields:
    """A list of plans, an upload for a visitor's own plan, and the plan's description.

    Args:
        public: whether the machine is shared; it then offers only the project's plans
    """

    def __init__(self, public: bool):
        self.public = public
        plans = [(f"{name}: {plan_file.find(name).title}", name) for name in plan_file.shipped()]
        own = [] if public else [("A plan of yours", OWN)]
        with gr.Column(min_width=320):
            self.plan = gr.Dropdown(
                [*plans, *own], value="stories", label="Plan", elem_id="experiment-plan"
            )
            self.file = GivenFile(
                label="A plan (.toml)", file_types=[".toml"], visible=False, height=120,
                elem_id="experiment-file",
            )  # fmt: skip
            self.own = gr.State(None)  # the file that was uploaded
            self.about = gr.HTML(
                self._about("stories", None), elem_id="experiment-about", elem_classes="wb-note"
            )

    @property
    def chosen(self) -> list[Any]:
        """The components whose values `read` takes."""
        return [self.plan, self.own]

    def wire(self) -> None:
        """Connect the fields with each other."""
        self.plan.change(lambda name: gr.update(visible=name == OWN), self.plan, self.file, **QUIET)
        self.plan.change(self._about, self.chosen, self.about, **QUIET)
        gr.on(
            [self.file.upload, self.file.clear],
            lambda plan, file: (file, self._about(plan, file)),
            [self.plan, self.file],
            [self.own, self.about],
            **QUIET,
        )

    def read(self, plan: str | None, file: Given | None) -> plan_file.Plan:
        """The plan that is chosen.

        Args:
            plan: its name, or OWN
            file: the visitor's own plan

        Raises:
            InputError: if none is chosen, or if the file is not a plan
        """
        if plan and plan != OWN:
            return plan_file.find(plan)
        if not plan or not file or self.public:
            raise InputError("No plan is chosen; choose a plan of the project, or a .toml file.")
        return plan_file.decoded(file.name, file.content)

    def _about(self, plan: str | None, file: Given | None) -> str:
        try:
            found = self.read(plan, file) if plan and (plan != OWN or file) else None
        except InputError as error:
            return words.note(str(error), "alert")
        return words.note(" ".join(found.about.split())) if found else ""
