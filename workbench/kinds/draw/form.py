"""The tab for draws: one prompt, continued with many seeds."""

from collections.abc import Mapping
from typing import Any, ClassVar

import gradio as gr

from workbench.kinds.branch.branching import of_pair
from workbench.kinds.draw.again import again
from workbench.kinds.draw.results import DrawResults, Live
from workbench.kinds.draw.study import Draw
from workbench.models.presets import PairChoice
from workbench.page.parts import words
from workbench.page.parts.frame import StudyTab
from workbench.page.parts.runner import sentence
from workbench.page.widgets.handlers import QUIET
from workbench.page.widgets.messages import Updates
from workbench.studies import presets

START = {**Draw.usual, "decoders": ["multinomial", "speculative", "mtad", "dsbd"]}
PROMPT = next(iter(presets.PROMPTS.values()))
INTRODUCTION = (
    "One text is chance; a hundred show the distribution. Each decoder continues the same prompt "
    "with many seeds, using the pair loaded in the Compare tab. The texts are shown as one tree "
    "with counts, and a test says whether their first tokens follow the large model's own "
    "distribution."
)


class DrawTab(StudyTab):
    study: ClassVar[type[Draw]] = Draw
    id, title, prefix = "draw", "Draws", "draw-"
    opening: ClassVar[Mapping[str, Any]] = {"prompt": PROMPT, "settings": START}
    linked: ClassVar[Mapping[str, Any]] = {"settings": START}
    shown: ClassVar[Mapping[str, Any]] = START

    results: DrawResults

    def lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        super().lay_out()

    def lay_out_results(self) -> DrawResults:
        return DrawResults()

    def _wire(self) -> None:
        super()._wire()
        changes = [*self.runner.starting, *self.results.kept.outputs]
        self.results.again.click(self._again, [self.results.shown, self.pair], changes, **QUIET)

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        draws = data["settings"].get("draws", Draw.draws) or "no"
        return f"{draws} draws · {words.chosen(data['settings'])}"

    def follow(self, study: Draw, *looked_at: Any) -> Live:
        return Live(self.results)

    def _again(self, id: str, choice: PairChoice) -> Updates:
        """Queue draws with other seeds, to add to the run on screen, or say what is wrong."""
        try:
            earlier = self.host.store.get(id)
            of_pair(self.host.loaded(choice), earlier)
            study = again(earlier, most=self.host.limits.max_draws)
            # The address names the run again once it has the new draws.
            return {**self.runner.start(study, choice, earlier), **self.results.kept.clear()}
        except Exception as error:
            return {self.runner.progress: words.note(sentence(error), "alert")}


TAB = DrawTab
