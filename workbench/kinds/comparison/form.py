"""Comparisons on the page: the first tab, with one prompt in many ways, and /compare."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gradio as gr

from decoders import InputError
from workbench.kinds.branch.form import answer_branching
from workbench.kinds.comparison import START, Comparison
from workbench.kinds.comparison.judging import answer_judging
from workbench.kinds.comparison.results import ComparisonResults, LiveComparison, samples
from workbench.models.presets import PairChoice
from workbench.page import words
from workbench.page.form import pair_picker
from workbench.page.frame import StudyTab
from workbench.page.host import Host
from workbench.page.runner import Answer, Jobs, answers, asked
from workbench.page.widgets import QUIET, Updates, Values
from workbench.runs.store import recordings
from workbench.studies.settings import PRESETS, PROMPTS, WARPING, Settings, in_words, shared

CUSTOM = "custom"
DARING = 1.5  # the highest temperature of the slider in the first band


class CompareTab(StudyTab):
    """Also picks the pair that all tabs use, and opens recorded runs."""

    study: ClassVar[type[Comparison]] = Comparison
    id, title, prefix, times_quietly = "compare", "Compare", "", True
    empty = "The prompt is empty; write a few words, or open an example below it."
    opening: ClassVar[Mapping[str, Any]] = {
        "prompt": next(iter(PROMPTS.values())),
        "settings": START,
    }
    linked: ClassVar[Mapping[str, Any]] = {
        "settings": {name: START[name] for name in ("decoders", "chat_template")}
    }
    shown: ClassVar[Mapping[str, Any]] = {"chat_template": START["chat_template"]}

    results: ComparisonResults

    def lay_out(self) -> None:
        compared = [each for each in recordings() if each.run.kind == self.study.kind]
        examples = compared[:4]
        others = [each for each in recordings() if each not in examples]
        with gr.Column(elem_id="asking"):
            self.introduction = gr.HTML(words.introduction(self.host.first), elem_id="says")
            with gr.Row(elem_id="ask", equal_height=True):
                self.lay_out_prompt(min_width=200)
                self.runner.lay_out_buttons(self.study.verb)
            self.heeds = gr.HTML(visible=False, elem_id="prompt-notes", elem_classes="wb-note")
            with gr.Row(elem_id="gallery", elem_classes="chips", visible=bool(examples)):
                for each in examples:
                    chip = gr.Button(each.title, size="sm", elem_classes="chip", min_width=0)
                    visit = f"() => WorkbenchAddress.visit('run={each.run.id}')"
                    chip.click(None, None, None, js=visit, api_visibility="private")
            with gr.Row(elem_id="tune"):
                self.daring = gr.Slider(
                    0, DARING, START["temperature"], step=0.1, label="careful … daring",
                    elem_id="daring", buttons=[], min_width=200, scale=0,
                )  # fmt: skip
                sheet = gr.Button(
                    "Decoders and settings", size="sm", elem_id="open-sheet", min_width=0
                )
                self.share = self.lay_out_share()
        with gr.Row(elem_id="state"):
            self.runner.lay_out_progress()
        self.lay_out_sheet(sheet)
        self.results = ComparisonResults(self.runner)
        with gr.Accordion("For researchers", open=False, elem_id="researchers"):
            self.results.lay_out_details()
            with gr.Accordion("Models", open=False, elem_id="models"):
                pair_picker(self.host, self.pair)
            gr.HTML(words.more_examples(others), elem_classes="wb-note")

    @property
    def doors(self) -> Updates:
        return {self.sheet: gr.update(visible=True)}

    def lay_out_sheet(self, button: gr.Button) -> None:
        with gr.Column(visible=False, elem_id="form") as self.sheet:
            with gr.Row(elem_id="sheet-head"):
                gr.HTML("<h2>Decoders and settings</h2>")
                close = gr.Button("Close", size="sm", elem_id="close-sheet", scale=0, min_width=80)
            self.asked = self.lay_out_summary("token-count")
            self.preset = gr.Dropdown(
                [(f"{name}: {in_words(own)}", name) for name, own in PRESETS.items()]
                + [("your own settings", CUSTOM)],
                value=preset_of(START), label="Sampling", elem_id="preset",
            )  # fmt: skip
            search = gr.Textbox(
                label="Search decoders", placeholder="a name, or what it does", max_lines=1,
                elem_id="search-decoders",
            )  # fmt: skip
            search.change(
                None, search, None, js="(words) => WorkbenchPage.search(words)",
                api_visibility="private",
            )  # fmt: skip
            self.form.lay_out_decoders()
            with gr.Column(elem_id="settings"):
                self.form.lay_out_settings(self.study.kind)
        for each, shown in ((button, True), (close, False)):
            each.click(lambda seen=shown: gr.update(visible=seen), None, self.sheet, **QUIET).then(
                None, None, None, js=f"WorkbenchPage.sheet({str(shown).lower()})",
                api_visibility="private",
            )  # fmt: skip
        self.told: list[Any] = [self.share, self.asked, self.heeds, self.preset]

    @property
    def fields(self) -> list[Any]:
        return [self.prompt, self.asked, self.preset, self.daring]

    def _wire(self) -> None:
        super()._wire()
        self.preset.input(
            self._preset,
            self.preset,
            [self.preset, *(self.form.shared[name] for name in WARPING)],
            **self.noted.filling,
        )
        temperature = self.form.shared["temperature"]
        self.daring.input(
            None, self.daring, temperature, js="(value) => value", api_visibility="private"
        )
        temperature.change(
            None, temperature, self.daring, api_visibility="private",
            js=f"(value) => Math.min({DARING}, Math.max(0, value ?? 0))",
        )  # fmt: skip
        self.pair.change(self.introduce, self.pair, [self.introduction, self.prompt], **QUIET)
        answer_branching(self.host, self.runner, self.results, self.pair)
        answer_judging(self.host, self.results, self.pair)

    def fill(self, data: Mapping[str, Any]) -> Updates:
        settings = data.get("settings", {})
        temperature = settings.get("temperature", Settings.temperature)
        return {
            **super().fill(data),
            self.preset: preset_of(settings),
            self.daring: min(DARING, temperature) if type(temperature) in (int, float) else 0,
        }

    def introduce(self, choice: PairChoice) -> Updates:
        """The line about the pair, and what the prompt's box says while it is empty."""
        invites = "Ask something" if self.host.chats(choice) else "Begin a text"
        return {
            self.introduction: words.introduction(choice),
            self.prompt: gr.update(placeholder=invites),
        }

    @property
    def beforehand(self) -> None:
        """Its recorded run comes with the page."""

    # ---- the study in the form

    def says(self, data: Mapping[str, Any], choice: PairChoice) -> str:
        prompt, settings = data["prompt"], data["settings"]
        try:
            count = self.host.tokens(prompt, settings, choice)
        except InputError as error:
            return f"{error} {words.chosen(settings)}"
        return f"{words.length(count, settings)} · {words.chosen(settings)}"

    def telling(self, values: Values, data: Mapping[str, Any], choice: PairChoice) -> Updates:
        """Also what its writer may not expect of the prompt, under its box."""
        notes = self.host.notes(data["prompt"], data["settings"], choice)
        return {
            **super().telling(values, data, choice),
            self.heeds: gr.update(value="".join(map(words.note, notes)), visible=bool(notes)),
            self.preset: preset_of(data["settings"]),
        }

    def follow(self, study: Comparison) -> LiveComparison:
        return LiveComparison(study, self.results)

    def _preset(self, name: str) -> Updates:
        """Updates for a preset: it sets the sampling; decoders and the number of tokens stay."""
        if name not in PRESETS:
            return {self.preset: gr.skip()}
        return {self.form.shared[each]: value for each, value in PRESETS[name].items()}


def preset_of(settings: Mapping[str, Any]) -> str:
    """The preset that these settings follow; those left out have their default."""
    whole = {**{f.name: f.default for f in shared()}, **settings}
    return next((n for n, own in PRESETS.items() if own.items() <= whole.items()), CUSTOM)


TAB = CompareTab


def endpoints(host: Host) -> Jobs:
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

    return (compare,)
