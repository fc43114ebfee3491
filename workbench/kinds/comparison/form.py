"""Comparisons on the page: the first tab, with decoders side by side, and the endpoint /compare."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gradio as gr

from decoders import InputError
from workbench.kinds.branch.form import Branching
from workbench.kinds.comparison.results import ComparisonResults, Live, samples
from workbench.kinds.comparison.study import START, Comparison
from workbench.kinds.judge.form import Judging
from workbench.models.presets import PairChoice
from workbench.page.answers import Answer
from workbench.page.api import answers, asked, offer
from workbench.page.host import Host
from workbench.page.parts import form, words
from workbench.page.parts.choices import PairPicker
from workbench.page.parts.frame import StudyTab
from workbench.page.widgets.handlers import Updates, Values
from workbench.runs.recorded import recordings
from workbench.studies import presets
from workbench.studies.settings import shared

CUSTOM = "custom"
PROMPT = next(iter(presets.PROMPTS.values()))


class CompareTab(StudyTab):
    """Also picks the pair that all tabs use, and opens recorded runs."""

    study: ClassVar[type[Comparison]] = Comparison
    id, title, prefix = "compare", "Compare", ""
    folded = "Decoders, settings, models"
    empty = "The prompt is empty; write a few words, or try one of those above."
    opening: ClassVar[Mapping[str, Any]] = {"prompt": PROMPT, "settings": START}
    linked: ClassVar[Mapping[str, Any]] = {
        "settings": {name: START[name] for name in ("decoders", "chat_template")}
    }
    shown: ClassVar[Mapping[str, Any]] = {"chat_template": START["chat_template"]}

    results: ComparisonResults

    def lay_out(self) -> None:
        with gr.Row(elem_id="gallery", elem_classes="chips", visible=bool(recordings())):
            gr.HTML("Try:", elem_classes="wb-note chips-name")
            self.gallery = [
                gr.Button(each.title, size="sm", elem_classes="chip") for each in recordings()
            ]
        with gr.Row(elem_id="asking", equal_height=True):
            self.lay_out_prompt(min_width=420)
            with gr.Column(scale=5, min_width=560), gr.Row(elem_id="go", equal_height=True):
                self.preset = gr.Dropdown(
                    [(presets.described(name), name) for name in presets.SETTINGS]
                    + [("your own settings", CUSTOM)],
                    value=presets.OPENING,
                    label="Sampling",
                    elem_id="preset",
                    scale=3,
                    min_width=430,
                )
                self.lay_out_buttons()
        with gr.Row(elem_classes="chips"):
            self.lay_out_asked("token-count")
        self.told.append(self.preset)
        self.lay_out_folds()
        self.results = ComparisonResults()

    def lay_out_more_folds(self) -> None:
        with gr.Accordion("Models", open=False, elem_id="models"):
            PairPicker(self.host, self.pair)

    @property
    def fields(self) -> list[Any]:
        return [self.prompt, self.asked, self.preset]

    @property
    def refreshing(self) -> list[Any]:
        return [self.pair.change]

    def _wire(self) -> None:
        super()._wire()
        self.preset.input(
            self._preset,
            self.preset,
            [self.preset, *(self._drawn(name) for name in presets.SETTINGS[presets.OPENING])],
            **self.noted.filling,
        )
        Branching(self.host, self.runner, self.results, self.pair)
        Judging(self.host, self.results, self.pair)

    def fill(self, data: Mapping[str, Any]) -> Updates:
        return {**super().fill(data), self.preset: _preset_of(data.get("settings", {}))}

    def greet(self) -> Updates:
        """Updates for a fresh page: the length of the prompt that it opens with."""
        return {
            self.asked: words.note(self.says(self.opening, self.host.first)),
            **super().offer(self.host.first),
        }

    def offer(self, choice: PairChoice, *ticked: Any) -> Updates:
        """The updates after another pair was loaded, whose chat template is used at first."""
        updates = super().offer(choice, *ticked)
        if self.host.offers(choice).get("chat_template"):
            updates[self.form.offered["chat_template"]] = gr.update(visible=True, value=True)
        return updates

    @property
    def beforehand(self) -> None:
        """Its recorded run comes with the page."""

    @property
    def unasked(self) -> Updates:
        """Updates that hide parts of a run that nobody asked for: its outcome, and its address.

        Its panels have come with the HTML.
        """
        return {
            self.runner.progress: "",
            self.results.kept.run_id: "",
            self.results.strip: gr.skip(),
        }

    # ---- the study in the form

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        prompt, settings = data["prompt"], data["settings"]
        try:
            count = self.host.tokens(prompt, settings, choice)
        except InputError as error:
            return f"{error} {words.chosen(settings)}"
        return words.tokens(count, settings, self.host.notes(prompt, settings, choice))

    def telling(self, values: Values, data: Mapping[str, Any], choice: PairChoice) -> Updates:
        return {**super().telling(values, data, choice), self.preset: _preset_of(data["settings"])}

    def follow(self, study: Comparison, *looked_at: Any) -> Live:
        return Live(study, self.results)

    def _preset(self, name: str) -> Updates:
        """Updates for a preset: it sets the sampling; decoders and the number of tokens stay."""
        if name not in presets.SETTINGS:
            return {self.preset: gr.skip()}
        return {self._drawn(each): value for each, value in presets.SETTINGS[name].items()}

    def _drawn(self, name: str) -> Any:
        return next(
            c.component
            for c in self.form.controls
            if (c.owner, c.field.name) == (form.SHARED, name)
        )


def _preset_of(settings: Mapping[str, Any]) -> str:
    """The preset that these settings follow; those left out have their default."""
    return presets.named({**{f.name: f.default for f in shared()}, **settings}) or CUSTOM


TAB = CompareTab


def endpoints(host: Host) -> None:
    def compare(
        prompt: str | list[dict[str, Any]],
        decoders: list[str] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Iterator[Answer]:
        """Decode one prompt with several decoders on the page's first pair, and compare them.

        They run one after another. Settings of all: max_new_tokens, temperature, top_k, top_p,
        min_p, top_n_sigma, temperature_last, seed, repeats, chat_template (a text is asked of the
        model in a chat if it has a template; False continues it) and system. A decoder's own stand
        under its name. What is left out is as the page's form begins; the answer's settings say it.

        Args:
            prompt: the text to continue, or a list of messages, each with role and content
            decoders: names of the catalog, such as ["greedy", "speculative", "mtad"]
            settings: values by name, such as {"min_p": 0.1, "mtad": {"beams": 4}}

        Returns:
            the run as its JSON export has it, with prompt and all settings
            and each result's text, tokens, rounds and metrics
        """
        yield from answers(
            host,
            lambda: Comparison.from_json(
                {"prompt": prompt, "settings": asked(decoders, settings, START, host.first)}
            ),
            samples,
        )

    offer(compare)
