"""Settings are checked when built, and a refusal names the fix."""

import dataclasses

import numpy as np
import pytest
import torch

from decoders.errors import InputError
from decoders.methods.catalog import catalog


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("mtad", {"threshold": 1.5}, "mtad: threshold must be a number from 0.0 to 1.0, not 1.5."),
    ("mtad", {"beams": True}, "whole number"),
    ("mtad", {"ratio": "wraped"}, "mtad: ratio must be 'warped' or 'raw', not 'wraped'."),
    ("mtad", {"treshold": 0.1}, "mtad has no setting 'treshold': did you mean 'threshold'?"),
    ("speculative", {"draft_length": "long"}, "'auto' or a whole number from 1 to 64, not 'long'"),
    ("dsbd", {"beams": 0}, "None or a whole number"),
    ("dsbd", {"keep_one": 1}, "keep_one"),
    ("mtad",
     {"beams": np.arange(2)},
     "mtad: beams must be a whole number from 1 to 64, not array([0, 1]); give an int."),
    ("dsbd",
     {"keep_one": torch.ones(2)},
     "dsbd: keep_one must be False or True, not tensor([1., 1.])."),
    ("lookup", {"references": ["a", "\ud83d"]}, "Reference document 2 holds half a character"),
])  # fmt: skip
def test_a_value_out_of_range_is_refused(name, settings, message):
    """Arrays and tensors raised their own errors, half a character in a reference the
    tokenizer's."""
    with pytest.raises(InputError) as error:
        catalog[name](**settings)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_numpys_own_numbers_and_truth_values_are_taken():
    """Options accepted them, settings did not.

    Python's own values are kept, which files and links can hold."""
    numbers = {"draft_beams": np.int64(3), "width_threshold": np.float32(0.5)}
    made = catalog["dsbd"](**numbers, keep_one=np.True_)
    found = made.draft_beams, made.width_threshold, made.keep_one
    assert found == (3, 0.5, True)
    assert [*map(type, found)] == [int, float, bool]


@pytest.mark.parametrize("method", catalog.values())
def test_every_setting_has_help_and_a_default_that_it_accepts(method):
    made = method()
    for field in dataclasses.fields(made):
        assert field.metadata["help"]
        assert dataclasses.replace(made, **{field.name: getattr(made, field.name)}) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.anything = 1
