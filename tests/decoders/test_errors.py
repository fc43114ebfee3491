"""Messages repeat an argument in a few words, however long it is."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import InputError, catalog
from decoders.errors import QUOTED, quoted
from tests.models import build_pair, build_tokenizer

LONG = {
    "number": -(10**400), "number that Python does not write": -(10**5000), "text": "x" * 5000,
    "list": [["x" * 5000] * 5000], "object": {"x" * 5000: ["y"] * 5000},
}  # fmt: skip


@pytest.fixture(scope="module")
def pair():
    return build_pair(tokenizer=build_tokenizer())


OPTIONS = ["max_new_tokens", "seed", "temperature", "top_k", "top_p", "min_p", "top_n_sigma",
           "temperature_last", "max_batch", "prefill_chunk",
           "padding", "max_cache_bytes", "cancel", "penalties"]  # fmt: skip


def message(call) -> str:
    with pytest.raises(InputError) as error:
        call()
    return str(error.value)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_cannot_be_used_is_repeated_in_short(pair, option):
    """A number of 401 digits was repeated whole; one of 5,001 gave a ValueError of Python's own."""
    for long in LONG.values():
        options = {option: (long,) if option == "cancel" else long}
        assert len(message(lambda o=options: decoders.check(pair, [1], "greedy", **o))) < 330
        assert len(message(lambda x=long: decoders.check(pair, [x, 1], "greedy"))) < 330


@pytest.mark.parametrize("given", LONG)
def test_a_setting_that_cannot_be_used_is_repeated_in_short(given):
    said = []
    for name in catalog:
        for field in dataclasses.fields(catalog[name]):
            try:
                catalog[name](**{field.name: LONG[given]})
            except InputError as error:
                said.append(str(error))
    assert len(max(said, key=len)) < 330


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.tuples(each, each),
)


@given(ANYTHING)
def test_what_is_short_is_repeated_as_it_is_and_what_is_long_from_its_start(value):
    text = quoted(value)
    assert len(text) <= QUOTED
    if isinstance(value, int | str | None) and len(repr(value)) <= QUOTED:
        assert text == repr(value)
    assert text[:5] == repr(value)[:5] or isinstance(value, (dict, list, tuple))
