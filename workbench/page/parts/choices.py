"""The choice of decoders, with a box for each in families, and that of a pair of models."""

from collections.abc import Iterable
from typing import Any

import gradio as gr

from decoders import InputError, catalog
from decoders.devices import all_devices
from workbench.models.keeper import offered
from workbench.models.presets import PAIRS, PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import DEVICE, QUIET, Updates, Values
from workbench.runs.figures import label
from workbench.show import families
from workbench.show.families import FAMILIES
from workbench.studies.settings import is_engine, method_of, placed

WORDS = {2: "two", 5: "five", 15: "fifteen", 16: "sixteen"}
OWN = "own models"
AS_STORED = "as stored"


class DecoderChoice:
    """A group of boxes for each family.

    Args:
        usual: the decoders that are ticked at first
        elem_id: of the row of groups
        engines: the names of the engines that may be asked, which are off at first
    """

    def __init__(self, usual: Iterable[str], elem_id: str, engines: Iterable[str] = ()):
        self.usual, self.elem_id = list(usual), elem_id
        served = families.served(engines)
        self.families = (*FAMILIES, served) if served.decoders else FAMILIES
        self.engines = served.decoders
        self.groups: list[gr.CheckboxGroup] = []

    def lay_out(self) -> None:
        with gr.Row(elem_id=self.elem_id, elem_classes="families"):
            self.groups = [
                gr.CheckboxGroup(
                    # The name, and below it the summary: the style sheet tells the lines apart.
                    [
                        (f"{label(name)}\n{method_of(name).summary}", name)
                        for name in family.decoders
                    ],
                    value=[name for name in family.decoders if name in self.usual],
                    label=family.title,
                    info=family.help,
                    elem_id=f"{self.elem_id}-{family.name}",
                    elem_classes="family",
                )
                for family in self.families
            ]
        self.first = self.groups[0]  # where a message about the whole choice stands
        with gr.Row(elem_classes="chips"):
            for names in (self.usual, list(catalog)):
                which = "All" if len(names) == len(catalog) else "The"
                boxes = [
                    [name for name in family.decoders if name in names] for family in self.families
                ]
                gr.Button(
                    f"{which} {WORDS.get(len(names), len(names))}",
                    size="sm",
                    elem_classes="chip",
                    elem_id=f"{self.elem_id}-{len(names)}",
                ).click(None, None, self.groups, js=f"() => {boxes}", api_visibility="private")

    def chosen(self, values: Values) -> list[str]:
        """The ticked decoders in their order on the page."""
        ticked = {name for group in self.groups for name in values[group]}
        return placed(name for name in (*catalog, *self.engines) if name in ticked)

    def filled(self, names: Iterable[str]) -> Updates:
        """Updates that tick these decoders; names that are not known here are left out."""
        names = list(names)
        return {
            group: [name for name in family.decoders if name in names]
            for group, family in zip(self.groups, self.families, strict=True)
        }

    def missing(self, names: Iterable[str]) -> list[str]:
        """A sentence for each engine that whoever runs this page has not named."""
        return [
            f"{label(name)} is not known here and was left out: whoever runs this page names "
            "engines."
            for name in names
            if is_engine(name) and name not in self.engines
        ]

    def follow(self, folds: dict[str, Any]) -> None:
        """Show the folds of the ticked decoders, and no others."""

        def seen(*chosen: list[str]) -> Updates:
            ticked = {name for names in chosen for name in names}
            return {fold: gr.update(visible=name in ticked) for name, fold in folds.items()}

        gr.on(
            [group.change for group in self.groups], seen, self.groups, [*folds.values()],
            trigger_mode="always_last", **QUIET,
        )  # fmt: skip


class PairPicker:
    """The inputs that choose a pair, and the button that loads it.

    Args:
        host: the page's host
        choice: the visitor's PairChoice, which changes only once its pair has been loaded
    """

    def __init__(self, host: Host, choice: gr.State):
        self.host = host
        usual = host.first.preset
        with gr.Row():
            self.preset = gr.Dropdown(
                [*offered(), *([OWN] if host.limits.custom_models else [])],
                value=usual.name if usual else OWN, label="Pair", elem_id="pair", scale=2,
                min_width=280,
                info="Pairs in grey do not fit in this machine's memory.",
            )  # fmt: skip
            self.device = gr.Dropdown(
                ["auto", *all_devices()],
                value="auto", label="Device", elem_id="device", min_width=120,
            )  # fmt: skip
            self.dtype = gr.Dropdown(
                ["auto", "float32", "bfloat16", "float16", "float64"],
                value="auto", label="Dtype", elem_id="dtype", min_width=120,
                info="auto: bfloat16 on CUDA, float32 on the CPU",
            )  # fmt: skip
            self.weights = gr.Dropdown(
                [AS_STORED, "int8", "int4"],
                value=AS_STORED, label="Weights", elem_id="weights", min_width=120,
                info="quantised while loading; int4 needs CUDA",
            )  # fmt: skip
        with gr.Row(visible=False) as self.own:
            hint = "a hub id (safetensors)"
            if not host.limits.public:
                hint += ", a folder or a GGUF file"
            self.target = gr.Textbox(label="Target", info=hint, elem_id="own-target", max_lines=1)
            self.draft = gr.Textbox(
                label="Draft", info=f"{hint}; empty for none", elem_id="own-draft", max_lines=1
            )
        with gr.Row():
            self.load = gr.Button("Load", elem_id="load-pair", scale=0, min_width=160)
            self.note = gr.HTML(elem_id="pair-note", elem_classes="wb-note")
        self.preset.change(
            lambda name: gr.update(visible=name == OWN), self.preset, self.own,
            queue=False, api_visibility="private",
        )  # fmt: skip
        self.load.click(
            self._load,
            [choice, self.preset, self.target, self.draft, self.device, self.dtype, self.weights],
            [choice, self.note], show_progress_on=self.note, **DEVICE,
        )  # fmt: skip

    def _load(
        self,
        current: PairChoice,
        preset: str,
        target: str,
        draft: str,
        device: str,
        dtype: str,
        weights: str,
    ) -> tuple[Any, str]:
        try:
            choice = self._chosen(
                preset, (target or "").strip(), (draft or "").strip(), device, dtype,
                None if weights == AS_STORED else weights,
            )  # fmt: skip
            pair = self.host.device.pair(choice)
        except InputError as error:
            return current, words.note(f"{error} In use: {current.title}.", "alert")
        says = f"In use: {choice.title}."
        if not pair.one_tokenizer:
            says += f" The draft knows {pair.known:.0%} of the target's tokens."
        for role, model in pair.plain.items():
            says += f" The {role} model runs {model.engine_name}."
        return choice, words.note(says)

    def _chosen(
        self,
        preset: str,
        target: str,
        draft: str,
        device: str,
        dtype: str,
        quantization: str | None,
    ) -> PairChoice:
        if preset not in (*PAIRS, OWN):
            raise InputError("Choose a pair from the list.")
        if preset != OWN:
            return PAIRS[preset].choice(device, dtype, quantization)
        if not self.host.limits.custom_models:
            raise InputError("Only the preset pairs may be loaded here.")
        if not target:
            raise InputError("Name a target: a hub id or a folder.")
        return PairChoice(target, draft or None, device, dtype, quantization)
