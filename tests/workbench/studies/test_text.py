"""A setting as text, and back."""

import dataclasses

import pytest

from decoders import catalog
from workbench.kinds.batch import Batch
from workbench.studies.settings import shared
from workbench.studies.text import allowed, cited, parse, written

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


def test_numbers_are_read_as_the_field_has_them_and_what_is_none_is_left_for_the_check():
    fields = {f.name: f for f in shared()}
    assert parse(fields["top_k"], "5.0") == 5
    assert isinstance(parse(fields["top_k"], 5.0), int)
    assert parse(fields["temperature"], "0.5") == 0.5
    assert parse(fields["temperature"], "warm") == "warm"
    assert parse(fields["chat_template"], "True") is True


def test_the_range_of_a_field_is_told_in_words():
    assert [allowed(f) for f in Batch.own()] == [
        "empty or 0.01 to 1,000,000",
        "empty or 1 to 1,000,000",
    ]


def test_a_section_without_a_number_has_no_section_sign():
    for method in catalog.values():
        assert cited(method).startswith(f"{method.paper}, ")
        assert ("§" in cited(method)) == method.section[0].isdigit()
