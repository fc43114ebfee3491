"""The choice of models: the embedded pair, a preset that fits, or others if that is allowed."""

from typing import Any

import gradio as gr

from decoders import InputError
from decoders.devices import all_devices
from workbench.models.keeper import offered
from workbench.models.presets import EMBEDDED, PAIRS, PairChoice
from workbench.page.host import Host
from workbench.page.parts import words
from workbench.page.widgets.handlers import DEVICE

OWN = "own models"
AS_STORED = "as stored"


class PairPicker:
    """The inputs that choose a pair, and the button that loads it.

    Args:
        host: the page's host
        choice: the visitor's PairChoice, which changes only once its pair has been loaded
    """

    def __init__(self, host: Host, choice: gr.State):
        self.host = host
        with gr.Row():
            self.preset = gr.Dropdown(
                [*offered(), *([OWN] if host.limits.custom_models else [])],
                value=EMBEDDED.name, label="Pair", elem_id="pair", scale=2, min_width=280,
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
            hint = "a hub id (safetensors) or a folder"
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
