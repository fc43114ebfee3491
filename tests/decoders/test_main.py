"""`python -m decoders`: the table, and a decoder's settings with their values."""

import dataclasses
import subprocess
import sys

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


@pytest.mark.slow
def test_an_unknown_name_is_one_sentence():
    """Four lines of torchao stood before it: transformers imports it where it is installed."""
    ended = subprocess.run(
        [sys.executable, "-m", "decoders", "nope"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("There is no decoder 'nope': there is greedy")
    assert ended.stderr.count("\n") == 1
