"""The settings form, with labels, ranges and help from the fields of the settings dataclasses."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from decoders import InputError, catalog
from decoders.settings import check
from workbench.page.parts.choices import DecoderChoice
from workbench.page.widgets.handlers import Updates, Values
from workbench.runs.figures import label
from workbench.studies import settings
from workbench.studies.settings import method_of
from workbench.studies.text import allowed, cited, is_list, is_switch, is_text, parse, written

SHARED = "settings"  # the owner of what all decoders share
DEFAULT_DECODERS = [method.name for method in settings.SHOWN]


@dataclasses.dataclass(frozen=True)
class Control:
    """One setting on the page.

    Attributes:
        owner: the decoder that has it, or SHARED
        field: the dataclass field of the setting
        component: its input
    """

    owner: str
    field: dataclasses.Field
    component: gr.components.Component

    def typed(self, raw: Any) -> Any:
        """The setting's value for typed input, unchecked."""
        value = parse(self.field, raw)
        # What is ticked means nothing to a pair that it is hidden for.
        return "auto" if value is True and "auto" in self.field.metadata["choices"] else value

    def read(self, raw: Any) -> Any:
        """The setting's value for typed input; raises InputError if it cannot be used."""
        if raw is None and None not in self.field.metadata["choices"]:
            raise InputError(f"{str(self.component.label).capitalize()} is empty.")
        value = self.typed(raw)
        try:
            check(self.owner, self.field, value)
        except InputError as error:
            words, name = str(error).removeprefix(f"{self.owner}: "), self.field.name
            raise InputError(words.replace(name, str(self.component.label), 1)) from None
        return value


def control(
    owner: str, field: dataclasses.Field, value: Any, prefix: str, most: float | None = None
) -> Control:
    """The control of a setting.

    Args:
        owner: the decoder that has it, or SHARED
        field: the dataclass field of the setting
        value: the value to show at first
        prefix: the beginning of its `elem_id`
        most: the largest value that this place allows, if that is lower than the field's
    """
    label, help = field.name.replace("_", " "), field.metadata["help"]
    text, id = written(field, value), f"{prefix}-{owner}-{field.name}"
    if is_switch(field):
        component: Any = gr.Checkbox(bool(value), label=label, info=help, elem_id=id)
    elif is_text(field) or is_list(field):
        component = gr.Textbox(text, label=label, info=help, min_width=180, elem_id=id)
    elif field.metadata["choices"] and field.metadata["low"] is None:
        component = gr.Dropdown(
            [written(field, choice) for choice in field.metadata["choices"]],
            value=text,
            label=label,
            info=help,
            min_width=180,
            elem_id=id,
            allow_custom_value=field.metadata["read"] is not None,
        )
    elif field.metadata["choices"]:
        component = gr.Textbox(
            text,
            label=label,
            info=f"{help} ({allowed(field)})",
            max_lines=1,
            min_width=180,
            elem_id=id,
        )
    else:
        component = gr.Number(
            value, label=label, info=f"{help} ({allowed(field, most)})", min_width=180, elem_id=id
        )
    if owner != SHARED and value != field.default:
        component.info += f"; the library's default is {written(field, field.default) or 'empty'}"
    return Control(owner, field, component)


# Settings that are shown only for pairs that they mean something for.
OFFERED = ("chat_template", "system", "penalties")
PARTS = ("draft_beams", "rule", "draft")  # settings that may not fit each other


class SettingsForm:
    """The choice of decoders, the shared settings in a row, and a fold for each decoder's own.

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
        self.start, self.limits, self.more = start, limits, more
        self.decoders = DecoderChoice(start.get("decoders", DEFAULT_DECODERS), elem_id, engines)
        # A card that lays out neither decoders nor settings has none of these.
        self.controls: list[Control] = []
        self.offered: dict[str, gr.components.Component] = {}
        self.folds: dict[str, gr.Accordion] = {}

    def lay_out_decoders(self) -> None:
        self.decoders.lay_out()

    def lay_out_settings(self) -> None:
        with gr.Row():
            self.controls = [
                control(
                    SHARED,
                    field,
                    self.start.get(field.name, field.default),
                    self.decoders.elem_id,
                    self.limits.get(field.name),
                )
                for field in (*self.more, *settings.shared())
            ]
        self.offered = {c.field.name: c.component for c in self.controls if c.field.name in OFFERED}
        for name, method in catalog.items():
            if fields := dataclasses.fields(method):
                with gr.Accordion(
                    f"{label(name)} · {cited(method)}", open=False, elem_classes="fold",
                    visible=name in self.decoders.usual,
                ) as self.folds[name]:  # fmt: skip
                    own = self.start.get(name, {})
                    self.controls += [
                        control(
                            name, field, own.get(field.name, field.default), self.decoders.elem_id
                        )
                        for field in fields
                    ]
        self.decoders.follow(self.folds)

    def offer(self, offers: Mapping[str, bool], ticked: Sequence[Any] = ()) -> dict[Any, Any]:
        """Updates that show, of the settings in OFFERED, those that are offered.

        One that counts stays in view, so that it can be switched off: what is hidden must not
        count. Those that nothing is known about stay as they are.

        Args:
            offers: what means something for the pair, by name
            ticked: the values in the form
        """
        counting = {name for name, on in zip(self.offered, ticked, strict=False) if on}
        counting.discard("chat_template")  # "auto" if it is ticked
        return {
            component: gr.update(visible=offers[name] or name in counting)
            if name in offers
            else gr.skip()
            for name, component in self.offered.items()
        }

    @property
    def outputs(self) -> list[Any]:
        return [*self.components, *self.folds.values()]

    @property
    def components(self) -> list[gr.components.Component]:
        return [*self.decoders.groups, *(c.component for c in self.controls)]

    def typed(self, values: Values) -> dict[str, Any]:
        """The settings in the form, as a study has them in JSON, unchecked."""
        chosen = self.decoders.chosen(values)
        data: dict[str, Any] = {"decoders": chosen}
        for each in self.controls:
            if each.owner == SHARED:
                data[each.field.name] = each.typed(values[each.component])
            elif each.owner in chosen:
                own = data.setdefault(each.owner, {})
                own[each.field.name] = each.typed(values[each.component])
        return data

    def faults(self, values: Values) -> dict[Any, str]:
        """A message for each input that cannot be used, without folds of decoders not chosen."""
        faults: dict[Any, str] = {}
        chosen = self.decoders.chosen(values)
        for each in self.controls:
            if each.owner == SHARED or each.owner in chosen:
                try:
                    each.read(values[each.component])
                except InputError as error:
                    faults[each.component] = str(error)
        for name in chosen:
            own = [each for each in self.controls if each.owner == name]
            if not any(each.component in faults for each in own):
                try:
                    method_of(name, {c.field.name: c.read(values[c.component]) for c in own})
                except InputError as error:  # settings that do not fit each other
                    box = next((c for c in own if c.field.name in PARTS), own[0])
                    faults[box.component] = str(error)
        if not chosen:
            faults[self.decoders.first] = "No decoder is chosen; choose at least one."
        return faults

    def filled(self, data: Mapping[str, Any]) -> Updates:
        """Updates that fill the form.

        Args:
            data: the settings, as a study has them in JSON. Those left out have the library's
                default, but decoders that are not chosen have the settings that the form began
                with.
        """
        chosen = list(data.get("decoders", self.decoders.usual))
        updates: Updates = self.decoders.filled(chosen)
        for each in self.controls:
            others = {} if each.owner in chosen else self.start.get(each.owner, {})
            own = data if each.owner == SHARED else data.get(each.owner, others)
            value = own.get(each.field.name, each.field.default)
            if is_list(each.field) or (
                each.field.metadata["choices"] and not is_switch(each.field)
            ):
                value = written(each.field, value)
            elif is_switch(each.field):
                value = bool(value)
            if value and each.field.name in OFFERED and each.field.name != "chat_template":
                value = gr.update(value=value, visible=True)  # so that it can be switched off
            updates[each.component] = value
        for name, fold in self.folds.items():
            updates[fold] = gr.update(visible=name in chosen)
        return updates
