"""The form is made from the dataclasses: each field of the catalog has an input. The inputs read
back as they were filled."""

import dataclasses
import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
import pytest

from decoders import catalog
from tests.workbench.page.visitor import Visitor
from workbench.models.presets import PairChoice
from workbench.page.form import Control, SettingsForm
from workbench.studies.settings import Settings, shared
from workbench.studies.study import Limits


def ticks(form: SettingsForm, names: list[str]) -> dict:
    return {
        group: [name for name in family.decoders if name in names]
        for group, family in zip(form.groups, form.families, strict=True)
    }


def laid_out(start: dict, limits: dict) -> SettingsForm:
    form = SettingsForm(start, limits)
    with gr.Blocks():
        form.lay_out_decoders()
        form.lay_out_settings("a form")
    return form


@pytest.fixture(scope="module")
def form() -> SettingsForm:
    return laid_out({}, {})


def filled(form: SettingsForm, data: dict) -> dict:
    """The values of the inputs once the form shows these settings."""
    values = form.filled(data)
    values[form.own] = values[form.own]["value"]
    return {component: values[component] for component in form.components}


def control(form: SettingsForm, owner: str, name: str) -> Control:
    return next(c for c in form.controls if (c.owner, c.field.name) == (owner, name))


def typed(form: SettingsForm, values: dict, owner: str, **own: Any) -> dict:
    """The values once these settings of a decoder have been typed."""
    before = values[form.own]["own"]
    own = {**before, owner: {**before.get(owner, {}), **own}}
    return values | {form.own: {**values[form.own], "own": own}}


def settings(form: SettingsForm, values: dict) -> Settings:
    return Settings.from_json(form.typed(values))


def test_every_setting_of_every_decoder_has_an_input(form):
    fields = {name: dataclasses.fields(method) for name, method in catalog.items()}
    fields["settings"] = shared()
    wanted = {(owner, field.name) for owner, own in fields.items() for field in own}
    assert {(c.owner, c.field.name) for c in form.controls} == wanted


@pytest.mark.parametrize("name", catalog)
def test_defaults_read_back(form, name):
    chosen = Settings.from_json({"decoders": [name]})
    values = filled(form, chosen.to_json())
    assert form.faults(values) == {}
    assert settings(form, values) == chosen


def test_a_fault_is_told_at_its_input_and_only_for_chosen_decoders(form):
    values = typed(form, filled(form, {"decoders": ["greedy"]}), "mtad", threshold=2)
    assert form.faults(values) == {}
    values |= ticks(form, ["mtad"])
    (each, message), *others = form.faults(values).items()
    assert (each.owner, each.field.name, others) == ("mtad", "threshold", [])
    assert "threshold must be" in message


def test_a_rule_that_does_not_fit_its_drafts_is_told_beside_the_box(form):
    values = filled(form, {"decoders": ["speculative"]})
    values = typed(form, values, "speculative", rule="cascade(alpha=0.5)")
    assert form.faults(values) == {}
    assert settings(form, values).methods[0].rule == "cascade(alpha=0.5)"
    faults = form.faults(typed(form, values, "speculative", rule="block", draft="tree"))
    assert set(faults) == {control(form, "speculative", "rule")}
    assert all("cannot judge the draft tree" in message for message in faults.values())


def test_an_emptied_field_is_called_empty(form):
    """It once said: settings: max_new_tokens must be 1 to 100,000, not None."""
    values = filled(form, {"decoders": ["greedy"]})
    budget = control(form, "settings", "max_new_tokens").component
    values[budget] = None
    assert form.faults(values)[budget] == "Max new tokens is empty."


def test_a_decoder_begins_with_the_settings_that_it_is_given(form):
    """Decoders that nobody has chosen keep them; a chosen one has the library's, see links."""
    start = {"decoders": ["greedy", "mtad"], "mtad": {"draft_length": 6}, "dsbd": {"beams": 2}}
    own = laid_out(start, {})
    begins = {c: c.value for c in own.components}
    assert settings(own, begins) == Settings.from_json(start)
    ends = "; the library's default is"
    assert control(own, "mtad", "draft_length").help.endswith(f"{ends} 4")
    assert control(own, "dsbd", "beams").help.endswith(f"{ends} empty")
    assert "default" not in control(own, "mtad", "beams").help
    values = filled(own, {"decoders": ["mtad"]})
    assert values[own.own]["own"]["mtad"]["draft_length"] == 4
    values |= ticks(own, ["dsbd"])
    assert settings(own, values).methods == (catalog["dsbd"](beams=2),)


def test_values_that_no_form_sends_are_none(form):
    """The note of all decoders' settings comes from a browser."""
    values = filled(form, {"decoders": ["mtad"]})
    for note in (None, "mtad", {"own": [1]}, {"own": {"mtad": 3, "none": {}}}):
        form.typed(values | {form.own: note})
        form.faults(values | {form.own: note})


def test_the_form_promises_no_more_than_this_place_allows():
    """On a public Space it promised 100,000 tokens and 1,000 repeats; 256 and 5 are allowed."""
    form = laid_out({}, Limits.from_environment({"SYSTEM": "spaces"}).most)
    help = {c.field.name: c.component.info for c in form.controls if c.owner == "settings"}
    assert help["max_new_tokens"].endswith("(1 to 256)")
    assert help["repeats"].endswith("(1 to 5)")
    assert help["timings"].endswith("(1 to 3)")


def box(visitor: Visitor) -> gr.Checkbox:
    """The box of the chat template in the Compare tab."""
    return setting(visitor, "chat template")


def loads(visitor: Visitor) -> None:
    """Another pair is loaded."""
    pair = next(each for each in visitor.page.blocks.values() if isinstance(each, gr.State))
    assert pair.value == PairChoice()
    visitor.fire(pair, "change")


def setting(visitor: Visitor, label: str) -> Any:
    """An input of the Compare tab."""
    blocks = visitor.page.blocks.values()
    return next(each for each in blocks if getattr(each, "label", None) == label)


@pytest.fixture
def template(byte_tokenizer):
    """A context in which the pair's tokenizer has a chat template."""

    @contextmanager
    def within(text: str = "[{{ messages[-1]['content'] }}]") -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(byte_tokenizer, "chat_template", text)
            yield

    return within


def test_a_text_is_asked_in_a_chat_where_there_is_a_template(house, template):
    """The box was off at first; a ticked one was in the way of pairs that have no template."""
    with template():
        visitor = Visitor(house[1])
        loads(visitor)
        assert visitor.value(box(visitor)) is True
        visitor.put("prompt", "Twice")
        assert "7 of " in visitor.value("token-count")
        assert "chat_template" not in visitor.value("settings-link")
        visitor.put(box(visitor), False)
        assert "5 of " in visitor.value("token-count")
        assert "chat_template=False" in visitor.value("settings-link")
        visitor.put(box(visitor), True)
    loads(visitor)
    visitor.put("prompt", "Thrice")
    assert "6 of " in visitor.value("token-count")
    assert visitor.breakdowns == []


def test_a_system_message_is_refused_where_there_is_no_template(house, template):
    with template("{% for m in messages %}{{ m['content'] }}/{% endfor %}"):
        visitor = Visitor(house[1])
        loads(visitor)
        system = setting(visitor, "system")
        visitor.put("prompt", "Twice")
        visitor.put(system, "Rhyme.")
        assert "13 of " in visitor.value("token-count")
        assert "system=Rhyme." in visitor.value("settings-link")
    loads(visitor)
    visitor.put("prompt", "Thrice")
    assert "leave `system` empty" in visitor.value("token-count")
    visitor.put(system, "")
    assert "6 of " in visitor.value("token-count")
    assert visitor.breakdowns == []


def test_a_link_of_a_chat_means_nothing_to_a_pair_without_a_template(house):
    visitor = Visitor(house[1], "prompt=Twice&chat_template=True")
    visitor.fire(house[1], "load")  # the browser notes the form, once it is filled
    assert visitor.breakdowns == []
    assert "5 of " in visitor.value("token-count")
    assert "prompt=Twice" in visitor.value("settings-link")


def test_messages_in_the_box_are_a_prompt(house, template):
    """They are typed, or come with a link or a run; the link to the settings has them, too."""
    with template():
        visitor = Visitor(house[1])
        messages = [{"role": "user", "content": "Hi"}]
        visitor.put("prompt", json.dumps(messages))
        assert "4 of " in visitor.value("token-count")
        (query,) = re.findall(r'href="\?(.*?)"', visitor.value("settings-link"))
        other = Visitor(house[1], html.unescape(query))
        assert json.loads(other.value("prompt")) == messages
        visitor.put("prompt", '[{"role": "robot", "content": "Hi"}]')
        assert "has the role &#x27;robot&#x27;" in visitor.value("token-count")
        visitor.put("prompt", '[{"rule": 1}]')  # a text like any other, asked in a chat
        assert "15 of " in visitor.value("token-count")
        assert visitor.breakdowns == other.breakdowns == []


def test_special_tokens_that_are_typed_are_named(house):
    """They were read as special tokens without a word; later the words were in the sheet alone."""
    visitor = Visitor(house[1])
    visitor.put("prompt", "Once<end>")
    says = visitor.value("prompt-notes")
    assert "Your text has &lt;end&gt;, which the tokenizer reads as a special token." in says
    visitor.put("prompt", "Once")
    assert not visitor.visible("prompt-notes")


def test_opening_a_tab_changes_no_setting_of_a_link(house):
    """Outside of the first tab the box was switched without a word, and another study ran."""
    visitor = Visitor(house[1], "kind=draw&prompt=Once&draws=10&chat_template=False")
    visitor.open("Draws")
    assert "chat_template=False" in visitor.value("draw-settings-link")
    visitor = Visitor(house[1], "kind=draw&prompt=Once&draws=10")
    visitor.open("Draws")
    assert "chat_template" not in visitor.value("draw-settings-link")
    assert visitor.breakdowns == []


def test_a_run_opens_with_what_its_chat_template_was_told(house, run):
    settings = {**run.study["settings"], "chat_template": True, "system": "Rhyme."}
    run = house[0].store.add(dataclasses.replace(run, study={**run.study, "settings": settings}))
    visitor = Visitor(house[1])
    system = setting(visitor, "system")
    visitor.put("past-runs", {"chosen": [run.id]})
    visitor.press("open-run")
    assert visitor.value("prompt") == run.title
    assert visitor.value(box(visitor)) is True
    assert visitor.value(system) == "Rhyme."
    assert visitor.breakdowns == []


def test_decoders_that_a_run_has_and_the_catalog_lacks_are_left_out(form):
    values = filled(form, {"decoders": ["greedy", "of a later version"]})
    assert form.chosen(values) == ["greedy"]
