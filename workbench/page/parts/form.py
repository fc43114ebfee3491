"""The settings form, made from the settings dataclasses: labels, ranges and help come from their fields, none from here."""

import dataclasses
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from decoders import InputError, catalog
from decoders.settings import check
from workbench.studies import links
from workbench.studies.settings import Settings, shared
from workbench.studies.text import allowed, cited, is_list, is_switch, parse, written

DEFAULT_DECODERS = ["greedy", "beam_search", "speculative", "mtad", "dsbd"]
UNFOLD = "(chosen) => {names}.map((name) => ({{__type__: 'update', visible: chosen.includes(name)}}))"
Values = Mapping[Any, Any]  # component -> what the visitor put there


@dataclass(frozen=True)
class Control:
    """One setting on the page: of one decoder, or (owner "settings") of all.

    component  the input;   field  the dataclass field it stands for
    """

    owner: str
    field: dataclasses.Field
    component: gr.components.Component

    def read(self, raw: Any) -> Any:
        """The setting's value from what was typed. Raises InputError in the words of the setting itself."""
        value = parse(self.field, raw)
        check(self.owner, self.field, value)
        return value


def control(owner: str, field: dataclasses.Field, value: Any) -> Control:
    label, help, default = field.name.replace("_", " "), field.metadata["help"], written(field, value)
    if is_switch(field):
        component: Any = gr.Checkbox(value, label=label, info=help)
    elif is_list(field):
        component = gr.Textbox(default, label=label, info=help, min_width=180)
    elif field.metadata["choices"] and field.metadata["low"] is None:
        choices = [written(field, choice) for choice in field.metadata["choices"]]
        component = gr.Dropdown(choices, value=default, label=label, info=help, min_width=180)
    elif field.metadata["choices"]:
        component = gr.Textbox(default, label=label, info=f"{help} ({allowed(field)})", max_lines=1, min_width=180)
    else:
        component = gr.Number(value, label=label, info=f"{help} ({allowed(field)})", min_width=180)
    return Control(owner, field, component)


class SettingsForm:
    """Shared settings in a row, the decoders to choose from, and a fold for each decoder that has settings of its own.

    start   what it shows at first, as `Settings.to_json` has it; what that leaves out has its default
    """

    def __init__(self, start: Mapping[str, Any] | None = None, elem_id: str = "decoders") -> None:
        self.start = start or {}
        self.elem_id = elem_id

    def lay_out_decoders(self) -> None:
        self.decoders = gr.CheckboxGroup(
            [(name.replace("_", " "), name) for name in catalog],
            value=self.start.get("decoders", DEFAULT_DECODERS),
            label="Decoders",
            info="They run one after another, so that each is timed alone.",
            elem_id=self.elem_id,
        )

    def lay_out_settings(self) -> None:
        with gr.Row():
            self.controls = [
                control("settings", field, self.start.get(field.name, field.default)) for field in shared()
            ]
        self.chat_template = next(c.component for c in self.controls if c.field.name == "chat_template")
        self.folds: dict[str, gr.Accordion] = {}
        chosen = self.start.get("decoders", DEFAULT_DECODERS)
        for name, method in catalog.items():
            fields = dataclasses.fields(method)
            if not fields:
                continue
            title = f"{name.replace('_', ' ')} · {cited(method)}"
            with gr.Accordion(title, open=False, visible=name in chosen, elem_classes="fold") as fold, gr.Row():
                self.controls += [control(name, field, field.default) for field in fields]
            self.folds[name] = fold
        unfold = UNFOLD.format(names=list(self.folds))
        self.decoders.change(None, self.decoders, list(self.folds.values()), js=unfold, api_visibility="private")

    @property
    def outputs(self) -> list[Any]:
        return [*self.components, *self.folds.values()]

    @property
    def components(self) -> list[gr.components.Component]:
        return [self.decoders, *(c.component for c in self.controls)]

    def typed(self, values: Values) -> dict[str, Any]:
        """What the form says, as `Settings.to_json` has it, unchecked."""
        data: dict[str, Any] = {"decoders": values[self.decoders]}
        for each in self.controls:
            if each.owner == "settings":
                data[each.field.name] = parse(each.field, values[each.component])
            elif each.owner in values[self.decoders]:
                data.setdefault(each.owner, {})[each.field.name] = parse(each.field, values[each.component])
        return data

    def settings(self, values: Values) -> Settings:
        """What the form says. Raises InputError where it cannot be used."""
        return Settings.from_json(self.typed(values))

    def faults(self, values: Values) -> Iterator[tuple[Control, str]]:
        """Each input that cannot be used, with the reason; folds of decoders that are not chosen do not count."""
        for each in self.controls:
            if each.owner == "settings" or each.owner in values[self.decoders]:
                try:
                    each.read(values[each.component])
                except InputError as error:
                    yield each, str(error)

    def filled(self, data: Mapping[str, Any]) -> dict[Any, Any]:
        """The form showing these settings (as `Settings.to_json` has them); what they leave out has its default."""
        chosen = [name for name in data.get("decoders", DEFAULT_DECODERS) if name in catalog]
        updates: dict[Any, Any] = {self.decoders: chosen}
        for each in self.controls:
            own = data if each.owner == "settings" else data.get(each.owner, {})
            value = own.get(each.field.name, each.field.default)
            as_text = is_list(each.field) or (each.field.metadata["choices"] and not is_switch(each.field))
            updates[each.component] = written(each.field, value) if as_text else value
        for name, fold in self.folds.items():
            updates[fold] = gr.update(visible=name in chosen)
        return updates

    def link(self, values: Values, prompt: str) -> str:
        """A link that fills the form as it stands."""
        query = html.escape(links.to_query(prompt, self.typed(values)))
        return f'<a href="?{query}">Link to these settings</a>'

    def value(self, values: Values, name: str) -> Any:
        """A shared setting as typed."""
        return next(values[c.component] for c in self.controls if c.owner == "settings" and c.field.name == name)
