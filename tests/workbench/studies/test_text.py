import dataclasses

import pytest

from decoders import catalog
from workbench.page.parts.form import control
from workbench.studies.text import parse, written

FIELDS = [(name, field) for name, method in catalog.items() for field in dataclasses.fields(method)]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=lambda x: getattr(x, "name", x))
def test_every_default_survives_the_way_to_text_and_back(name, field):
    method = catalog[name](**{field.name: parse(field, written(field, field.default))})
    assert method == catalog[name]()


def test_several_numbers_and_texts_are_written_as_one_text():
    fields = {f"{name}.{field.name}": field for name, field in FIELDS}
    expansion, references = fields["specinfer.expansion"], fields["lookup.references"]
    assert written(expansion, [4, 2]) == written(expansion, (4, 2)) == "4,2"
    assert catalog["specinfer"](expansion=parse(expansion, "4, 2")).expansion == (4, 2)
    assert written(references, ("Once.",)) == "Once."
    assert catalog["lookup"](references=parse(references, "Once.")).references == ("Once.",)
    assert parse(references, "") == ()  # an empty box is no document, not an empty one


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=lambda x: getattr(x, "name", x))
def test_every_setting_has_an_input_that_shows_its_default(name, field):
    """A tuple was handed to a number input, which cannot show it."""
    made = control(name, field, field.default)
    shown = made.component.value
    assert made.read(shown) == field.default or made.read(shown) == written(field, field.default)
