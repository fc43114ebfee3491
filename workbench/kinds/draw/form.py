"""Draws on the page: one prompt continued with many seeds, as a tab and as the endpoint /draw."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import gradio as gr

from workbench.kinds.branch import of_pair
from workbench.kinds.draw import START, Draw, again
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.frame import Figures, StudyTab
from workbench.page.host import Host
from workbench.page.runner import Answer, Jobs, answers, asked, sentence
from workbench.page.widgets import QUIET, Updates
from workbench.runs.draws import findings
from workbench.runs.record import Run
from workbench.runs.store import recorded
from workbench.show import draws, tables
from workbench.studies import settings as presets

INTRODUCTION = (
    "Does a decoder write what the large model alone would write? Each continues one prompt many "
    "times: bars count the first words that it drew, and a line marks what the large model makes "
    "one expect."
)


class DrawResults(Figures):
    """Findings in sentences, a tree for each decoder, figures, and links.

    While a study runs, it shows each decoder as soon as that is done.
    """

    def lay_out(self, prefix: str) -> list[Any]:
        self.first = gr.HTML(elem_id="draw-first", padding=False)
        self.headline = gr.HTML(elem_id="draw-headline", elem_classes="wb-note")
        self.again = gr.Button("Again with other seeds", size="sm", scale=0, elem_id="draw-more")
        self.trees = gr.HTML(elem_id="draw-trees")
        self.table = gr.HTML(elem_id="draw-figures", elem_classes="wb-note")
        self.timing = gr.HTML(elem_id="draw-timing", elem_classes="wb-note")
        self.shown = gr.State("")  # the run that draws can be added to
        parts = [self.first, self.headline, self.again, self.trees, self.table, self.timing]
        return [*parts, self.shown]

    def show(self, run: Run, unkept: bool = False) -> Updates:
        if not run.results:
            return self.begin()
        more = not unkept and run.settings.get("temperature") != 0 and recorded(run.id) is None
        return {
            **super().show(run, unkept),
            self.again: gr.update(visible=more),
            self.shown: run.id if more else "",
            self.timing: words.timing(run),
        }

    def growing(self, run: Run) -> Updates:
        return {
            self.box: gr.update(visible=True),
            self.first: draws.first_words(run),
            self.headline: draws.headline(run) + words.source(run),
            self.trees: draws.trees(run),
            self.table: tables.markup(draws.table(run)),
        }


class DrawTab(StudyTab):
    study: ClassVar[type[Draw]] = Draw
    id, title, prefix = "draw", "Draws", "draw-"
    opening: ClassVar[Mapping[str, Any]] = {
        "prompt": next(iter(presets.PROMPTS.values())),
        "settings": START,
    }
    linked: ClassVar[Mapping[str, Any]] = {"settings": START}
    shown: ClassVar[Mapping[str, Any]] = START

    figures: ClassVar[type[Figures]] = DrawResults
    results: DrawResults

    def lay_out(self) -> None:
        gr.Markdown(INTRODUCTION, elem_classes="wb-note")
        super().lay_out()

    def _wire(self) -> None:
        super()._wire()
        self.results.again.click(
            self._again,
            [self.results.shown, self.pair],
            [*self.runner.starting, self.results.kept.run_id],
            **QUIET,
        )

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        draws = data["settings"].get("draws", Draw.draws) or "no"
        notes = self.host.notes(data["prompt"], data["settings"], choice)
        return " · ".join([f"{draws} draws", words.chosen(data["settings"]), *notes])

    def _again(self, id: str, choice: PairChoice) -> Updates:
        try:
            study, earlier = self._more(id)
            of_pair(self.host.loaded(choice), earlier)
            started = self.runner.start(study, choice, partial(self._more, id, study.draws))
            # The address names the run again once it has the new draws.
            return {**started, self.results.kept.run_id: ""}
        except Exception as error:
            return {self.runner.progress: words.note(sentence(error), "alert")}

    def _more(self, id: str, draws: int | None = None) -> tuple[Draw, Run]:
        """The study that adds draws to a run as that is by now, and the run."""
        earlier = self.host.store.get(id)
        return again(earlier, draws, self.host.limits.most.get("draws")), earlier


TAB = DrawTab


def endpoints(host: Host) -> Jobs:
    def draw(
        prompt: str | list[dict[str, Any]],
        decoders: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Iterator[Answer]:
        """Continue one prompt with many seeds, and compare the draws with the exact law.

        Each decoder makes 10 to 1,000 draws on the page's first pair. Settings of all: draws,
        max_new_tokens, temperature, top_k, top_p, min_p, top_n_sigma, temperature_last, seed,
        chat_template, system. A decoder's own stand under its name. What is left out is as the
        page's form begins; the answer's settings say it.

        Args:
            prompt: the text to continue, or a list of messages, each with role and content
            decoders: names of the catalog, such as ["multinomial", "speculative", "mtad"]
            settings: values by name, such as {"draws": 200, "mtad": {"beams": 4}}

        Returns:
            the run as its JSON export has it, with each result's samples
            and findings: for each decoder unlike, p, distance, and that of exact draws
        """
        yield from answers(
            host,
            lambda: Draw.from_json(
                {"prompt": prompt, "settings": asked(decoders, settings, START, host.first)}
            ),
            lambda run: {"findings": list(map(asdict, findings(run)))},
        )

    return (draw,)
