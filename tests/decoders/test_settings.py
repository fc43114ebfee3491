"""Settings are checked when built, and a refusal names the fix."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch

from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.settings import Method, setting


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mtad", {"threshold": 1.5}, "mtad: threshold must be a number from 0.0 to 1.0, not 1.5."),
        ("mtad", {"threshold": float("nan")}, "mtad: threshold must be"),
        ("mtad", {"beams": 0}, "mtad: beams must be a whole number from 1 to 64, not 0."),
        ("mtad", {"beams": 2.5}, "whole number"),
        ("mtad", {"beams": True}, "whole number"),
        ("mtad", {"ratio": "wraped"}, "mtad: ratio must be 'warped' or 'raw', not 'wraped'."),
        ("mtad", {"treshold": 0.1}, "mtad has no setting 'treshold': did you mean 'threshold'?"),
        ("greedy", {"beams": 2}, "greedy has no setting 'beams'"),
        (
            "speculative",
            {"draft_length": "long"},
            "'auto' or a whole number from 1 to 64, not 'long'",
        ),
        ("speculative", {"lenience": 0}, "lenience"),
        ("dsbd", {"beams": 0}, "None or a whole number"),
        ("dsbd", {"keep_one": 1}, "keep_one"),
        ("beam_search", {"early_stopping": "always"}, "'never'"),
        ("spectr", {"drafts": 0}, "spectr: drafts must be"),
        ("spectr", {"draft_length": 0}, "spectr: draft_length must be"),
        ("typical", {"epsilon": 1.5}, "typical: epsilon must be"),
        ("typical", {"delta": -0.1}, "typical: delta must be"),
        ("lookup", {"match": 0}, "lookup: match must be"),
        ("lookup", {"copy": 0}, "lookup: copy must be"),
        ("lookup", {"prefer": "best"}, "lookup: prefer must be"),
        ("lookup", {"lenience": 0}, "lookup: lenience must be"),
        ("ngram", {"smoothing": 0}, "ngram: smoothing must be"),
        ("ngram", {"order": "trigram"}, "ngram: order must be"),
        (
            "mtad",
            {"beams": np.arange(2)},
            "mtad: beams must be a whole number from 1 to 64, not array([0, 1]); give an int.",
        ),
        ("mtad", {"threshold": Fraction(1, 2)}, "not Fraction(1, 2); give an int or a float."),
        (
            "dsbd",
            {"keep_one": torch.ones(2)},
            "dsbd: keep_one must be False or True, not tensor([1., 1.]).",
        ),
        (
            "mtad",
            {"ratio": np.ones(2)},
            "mtad: ratio must be 'warped' or 'raw', not array([1., 1.]).",
        ),
        ("lookup", {"references": ["a", "\ud83d"]}, "Reference document 2 holds half a character"),
        (
            "specinfer",
            {"expansion": "1" * 5000},
            "specinfer: more than 512 draft tokens per round are too many",
        ),
    ],
)
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
    made = catalog["dsbd"](
        draft_beams=np.int64(3), width_threshold=np.float32(0.5), keep_one=np.True_
    )
    assert (made.draft_beams, made.width_threshold, made.keep_one) == (3, 0.5, True)
    assert [type(v) for v in (made.draft_beams, made.width_threshold, made.keep_one)] == [
        int,
        float,
        bool,
    ]


@pytest.mark.parametrize("method", catalog.values())
def test_every_setting_has_help_and_a_default_that_it_accepts(method):
    made = method()
    for field in dataclasses.fields(made):
        assert field.metadata["help"]
        assert dataclasses.replace(made, **{field.name: getattr(made, field.name)}) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.anything = 1


def test_a_setting_takes_its_range_and_its_choices():
    @dataclasses.dataclass(frozen=True)
    class Made(Method):
        name = "made"
        law = None
        size: int | str = setting(3, "how many", low=1, high=9, choices=("all",))

    assert (Made().size, Made("all").size, Made(9).size) == (3, "all", 9)
    for wrong in (0, 10, "none", True, None):
        with pytest.raises(InputError, match="size"):
            Made(wrong)


def test_a_setting_may_have_one_bound():
    """The range said "from 1 to None", and any number raised a TypeError."""

    @dataclasses.dataclass(frozen=True)
    class Made(Method):
        name = "made"
        law = None
        size: int = setting(3, "how many", low=1)
        least: float = setting(0.5, "at most", high=1.0)

    assert (Made(10**9).size, Made(least=-7).least) == (10**9, -7)
    with pytest.raises(
        InputError, match=r"made: size must be a whole number of 1 or more, not 0\."
    ):
        Made(0)
    with pytest.raises(InputError, match=r"made: least must be a number of at most 1\.0, not 2\."):
        Made(least=2)
