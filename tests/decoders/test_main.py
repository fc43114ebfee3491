"""`python -m decoders`: the table, and a decoder's settings with their values."""

import dataclasses

import pytest

from decoders import catalog
from decoders.__main__ import settings


@pytest.mark.parametrize("name", list(catalog))
def test_every_setting_stands_with_the_values_it_may_take(name):
    """`python -m decoders mtad` did not name the values of a setting."""
    fields, lines = dataclasses.fields(catalog[name]), settings(name).splitlines()
    for field, line in zip(fields, lines, strict=False):
        assert line.startswith(f"{field.name} = {field.default!r}: ")
        words = [repr(choice) for choice in field.metadata["choices"]]
        if field.metadata["low"] is not None:
            words.append(f"{field.metadata['low']} to {field.metadata['high']}")
        for word in words:
            assert word in line.rsplit("(", 1)[1]
    assert len(lines) == max(1, len(fields))
