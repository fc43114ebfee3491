"""The settings form: the choice of decoders and of a pair, and the fields of their settings.

Labels, ranges and help come from the fields of the settings dataclasses.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gradio as gr

from decoders import InputError, catalog
from decoders.devices import all_devices
from decoders.settings import check
from workbench.models.presets import PAIRS, PairChoice
from workbench.page import words
from workbench.page.host import Host
from workbench.page.widgets import DEVICE, Canvas, Updates, Values
from workbench.runs.figures import label
from workbench.show.looks import FAMILIES, served
from workbench.studies.settings import (
    SHOWN,
    allowed,
    cited,
    is_engine,
    is_list,
    is_switch,
    is_text,
    method_of,
    parse,
    placed,
    shared,
    written,
)

OWN = "own models"
AS_STORED = "as stored"


def pair_picker(host: Host, pair: gr.State) -> None:
    """Lay out the inputs that choose a pair, and the button that loads it.

    Args:
        host: the page's host
        pair: the visitor's PairChoice, which changes only once its pair has been loaded
    """

    def use(
        current: PairChoice,
        preset: str,
        target: str,
        draft: str,
        device: str,
        dtype: str,
        weights: str,
    ) -> tuple[PairChoice, str]:
        on = device, dtype, None if weights == AS_STORED else weights
        try:
            if preset != OWN:
                choice = PAIRS[preset].choice(*on)
            elif (target or "").strip():
                choice = PairChoice(target.strip(), (draft or "").strip() or None, *on)
            else:
                raise InputError("Name a target: a hub id or a folder.")
            host.device.pair(choice)
        except InputError as error:
            return current, words.note(f"{error} In use: {current.title}.", "alert")
        return choice, words.note(f"In use: {choice.title}.")

    usual = host.first.preset
    with gr.Row():
        preset = gr.Dropdown(
            [*PAIRS, *([OWN] if host.limits.custom_models else [])],
            value=usual.name if usual else OWN, label="Pair", elem_id="pair", scale=2,
            min_width=280,
        )  # fmt: skip
        device = gr.Dropdown(
            ["auto", *all_devices()],
            value="auto", label="Device", elem_id="device", min_width=120,
        )  # fmt: skip
        dtype = gr.Dropdown(
            ["auto", "float32", "bfloat16", "float16", "float64"],
            value="auto", label="Dtype", elem_id="dtype", min_width=120,
            info="auto: bfloat16 on CUDA, float32 on the CPU",
        )  # fmt: skip
        weights = gr.Dropdown(
            [AS_STORED, "int8", "int4"],
            value=AS_STORED, label="Weights", elem_id="weights", min_width=120,
            info="quantised while loading; int4 needs CUDA",
        )  # fmt: skip
    with gr.Row(visible=False) as own:
        hint = "a hub id (safetensors)"
        if not host.limits.public:
            hint += ", a folder or a GGUF file"
        target = gr.Textbox(label="Target", info=hint, elem_id="own-target", max_lines=1)
        draft = gr.Textbox(
            label="Draft", info=f"{hint}; empty for none", elem_id="own-draft", max_lines=1
        )
    with gr.Row():
        load = gr.Button("Load", elem_id="load-pair", scale=0, min_width=160)
        note = gr.HTML(elem_id="pair-note", elem_classes="wb-note")
    preset.change(
        lambda name: gr.update(visible=name == OWN), preset, own,
        queue=False, api_visibility="private",
    )  # fmt: skip
    load.click(
        use,
        [pair, preset, target, draft, device, dtype, weights],
        [pair, note], show_progress_on=note, **DEVICE,
    )  # fmt: skip


SHARED = "settings"  # the owner of what all decoders share


@dataclasses.dataclass(frozen=True, eq=False)
class Control:
    """One setting on the page.

    Attributes:
        owner: the decoder that has it, or SHARED
        field: the dataclass field of the setting
        start: the value that the form begins with
        elem_id: of its input
        most: the largest value that this place allows, if that is lower than the field's
        component: its input, if that is there from the beginning
    """

    owner: str
    field: dataclasses.Field
    start: Any
    elem_id: str
    most: float | None = None
    component: Any = None

    @property
    def label(self) -> str:
        return self.field.name.replace("_", " ")

    def typed(self, raw: Any) -> Any:
        value = parse(self.field, raw)
        # A chat template that is ticked means nothing to a pair that has none.
        return "auto" if value is True and "auto" in self.field.metadata["choices"] else value

    def read(self, raw: Any) -> Any:
        """The setting's value for typed input; raises InputError if it cannot be used."""
        if raw is None and None not in self.field.metadata["choices"]:
            raise InputError(f"{self.label.capitalize()} is empty.")
        value = self.typed(raw)
        try:
            check(self.owner, self.field, value)
        except InputError as error:
            words, name = str(error).removeprefix(f"{self.owner}: "), self.field.name
            raise InputError(words.replace(name, self.label, 1)) from None
        return value

    def raw(self, value: Any) -> Any:
        if is_switch(self.field):
            return bool(value)
        if is_list(self.field) or self.field.metadata["choices"]:
            return written(self.field, value)
        return value

    @property
    def kind(self) -> str:
        """The kind of its input.

        It is "switch", "choice", "number", "text", which may offer choices, or "lines".
        """
        choices, low = self.field.metadata["choices"], self.field.metadata["low"]
        if is_switch(self.field):
            return "switch"
        if is_list(self.field):
            return "lines"
        if choices and low is None:
            return "text" if self.field.metadata["read"] is not None else "choice"
        return "text" if choices or is_text(self.field) else "number"

    @property
    def choices(self) -> list[str]:
        fixed = self.field.metadata["low"] is None and self.kind in ("choice", "text")
        return [written(self.field, each) for each in self.field.metadata["choices"] if fixed]

    @property
    def help(self) -> str:
        help, field = self.field.metadata["help"], self.field
        choices, low = field.metadata["choices"], field.metadata["low"]
        if self.kind == "number" or (choices and low is not None):
            help += f" ({allowed(field, self.most)})"
        if self.owner != SHARED and self.start != field.default:
            help += f"; the library's default is {written(field, field.default) or 'empty'}"
        return help

    def laid_out(self) -> "Control":
        raw, kind = self.raw(self.start), self.kind
        options: Any = {"label": self.label, "elem_id": self.elem_id, "info": self.help}
        if kind == "switch":
            component: Any = gr.Checkbox(raw, **options)
        elif kind == "number":
            component = gr.Number(raw, min_width=180, **options)
        elif self.choices:
            component = gr.Dropdown(
                self.choices, value=raw, allow_custom_value=kind == "text", min_width=180, **options
            )
        else:
            if self.field.metadata["choices"]:
                options["max_lines"] = 1
            component = gr.Textbox(raw, min_width=180, **options)
        return dataclasses.replace(self, component=component)


PARTS = ("draft_beams", "rule", "draft")  # settings that may not fit each other


class SettingsForm:
    """The choice of decoders, the shared settings in a row, and a fold for each decoder's own.

    The browser draws the folds of the ticked decoders. What is typed there is one value, that of
    `own`: a decoder and a setting that it does not name are as the form begins.

    Args:
        start: the settings to show at first, as in `Settings.to_json`; others have the library's
            default
        limits: the largest value of each shared setting that is limited in this place
        elem_id: of the choice of decoders
        more: further fields of the study, shown before the shared ones
        engines: the names of the engines that may be asked
    """

    def __init__(
        self,
        start: Mapping[str, Any],
        limits: Mapping[str, int],
        elem_id: str = "decoders",
        more: Sequence[dataclasses.Field] = (),
        engines: Sequence[str] = (),
    ) -> None:
        self.start, self.limits, self.more, self.elem_id = start, limits, more, elem_id
        # Ticked at first.
        self.usual = list(start.get("decoders", [method.name for method in SHOWN]))
        family = served(engines)
        self.engines = family.decoders
        self.families = (*FAMILIES, family) if self.engines else FAMILIES
        # A card that lays out neither decoders nor settings has none of these.
        self.groups: list[gr.CheckboxGroup] = []
        self.controls: list[Control] = []
        self.shared: dict[str, Any] = {}
        self.own: Any = None

    def lay_out_decoders(self) -> None:
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
        with gr.Row(elem_classes="chips"):
            for which, names in (("The usual", self.usual), ("All", list(catalog))):
                boxes = [
                    [name for name in family.decoders if name in names] for family in self.families
                ]
                title, elem_id = f"{which} {len(names)}", f"{self.elem_id}-{len(names)}"
                chip = gr.Button(title, size="sm", elem_classes="chip", elem_id=elem_id)
                chip.click(None, None, self.groups, js=f"() => {boxes}", api_visibility="private")

    def lay_out_settings(self, name: str) -> None:
        prefix = self.elem_id
        with gr.Row():
            self.controls = [
                Control(
                    SHARED, field, self.start.get(field.name, field.default),
                    f"{prefix}-{SHARED}-{field.name}", self.limits.get(field.name),
                ).laid_out()
                for field in (*self.more, *shared())
            ]  # fmt: skip
        self.shared = {each.field.name: each.component for each in self.controls}
        decoders = []
        for owner, method in catalog.items():
            own = self.start.get(owner, {})
            controls = [
                Control(
                    owner, field, own.get(field.name, field.default),
                    f"{prefix}-{owner}-{field.name}",
                )
                for field in dataclasses.fields(method)
            ]  # fmt: skip
            self.controls += controls
            if controls:
                fields = [
                    {
                        "name": each.field.name, "id": each.elem_id, "label": each.label,
                        "help": each.help, "kind": each.kind, "choices": each.choices,
                        "start": each.raw(each.start),
                    }
                    for each in controls
                ]  # fmt: skip
                title = f"{label(owner)} · {cited(method)}"
                decoders.append({"name": owner, "title": title, "fields": fields})
        # As components of Gradio they were 400 of 1,047, which every visitor's browser walked
        # through at each update.
        about = json.dumps({"form": name, "decoders": decoders})
        self.own = Canvas(
            f"WorkbenchSettings.show(root, {about}, props, trigger);",
            {"ticked": self.usual, "own": {}},
            elem_id=f"{prefix}-own",
        )
        gr.on(
            [group.change for group in self.groups], None, self.groups, None,
            js=f"(...groups) => WorkbenchSettings.tick('{prefix}-own', groups.flat())",
            api_visibility="private",
        )  # fmt: skip

    def _typed(self, values: Values, control: Control) -> Any:
        if control.component is not None:
            return values[control.component]
        begins = control.raw(control.start)
        try:  # a client may send anything
            return values[self.own]["own"][control.owner].get(control.field.name, begins)
        except (AttributeError, KeyError, TypeError):
            return begins

    @property
    def components(self) -> list[gr.components.Component]:
        return [*self.groups, *self.shared.values(), *([] if self.own is None else [self.own])]

    def chosen(self, values: Values) -> list[str]:
        ticked = {name for group in self.groups for name in values[group]}
        return placed(name for name in (*catalog, *self.engines) if name in ticked)

    def missing(self, names: Iterable[str]) -> list[str]:
        """A sentence for each engine that whoever runs this page has not named."""
        return [
            f"{label(name)} is not known here and was left out: whoever runs this page names "
            "engines."
            for name in names
            if is_engine(name) and name not in self.engines
        ]

    def typed(self, values: Values) -> dict[str, Any]:
        """The settings in the form, as a study has them in JSON, unchecked."""
        chosen = self.chosen(values)
        data: dict[str, Any] = {"decoders": chosen}
        for each in self.controls:
            if each.owner == SHARED:
                data[each.field.name] = each.typed(self._typed(values, each))
            elif each.owner in chosen:
                own = data.setdefault(each.owner, {})
                own[each.field.name] = each.typed(self._typed(values, each))
        return data

    def faults(self, values: Values) -> dict[Any, str]:
        """A message for each input that cannot be used, without those of decoders not chosen.

        A decoder's own setting stands there as its Control.
        """
        faults: dict[Any, str] = {}
        chosen = self.chosen(values)
        for each in self.controls:
            if each.owner == SHARED or each.owner in chosen:
                try:
                    each.read(self._typed(values, each))
                except InputError as error:
                    faults[each.component or each] = str(error)
        for name in chosen:
            own = [each for each in self.controls if each.owner == name]
            if not any(each in faults for each in own):
                try:
                    method_of(name, {c.field.name: c.read(self._typed(values, c)) for c in own})
                except InputError as error:  # settings that do not fit each other
                    faults[next((c for c in own if c.field.name in PARTS), own[0])] = str(error)
        if not chosen:
            faults[self.groups[0]] = "No decoder is chosen; choose at least one."
        return faults

    def filled(self, data: Mapping[str, Any]) -> Updates:
        """Updates that fill the form.

        Args:
            data: the settings, as a study has them in JSON. Those left out have the library's
                default, but decoders that are not chosen have the settings that the form began
                with.
        """
        chosen = list(data.get("decoders", self.usual))
        updates: Updates = {
            group: [name for name in family.decoders if name in chosen]
            for group, family in zip(self.groups, self.families, strict=True)
        }
        own: dict[str, dict[str, Any]] = {}
        for each in self.controls:
            if each.owner != SHARED:
                if each.owner in chosen:
                    value = data.get(each.owner, {}).get(each.field.name, each.field.default)
                    own.setdefault(each.owner, {})[each.field.name] = each.raw(value)
                continue
            updates[each.component] = each.raw(data.get(each.field.name, each.field.default))
        if self.own is not None:
            updates[self.own] = gr.update(value={"ticked": chosen, "own": own})
        return updates
