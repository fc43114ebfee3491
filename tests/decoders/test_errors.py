"""Messages repeat an argument in a few words, however long it is."""

import ast
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decoders
import workbench
from decoders import InputError, catalog
from decoders.errors import QUOTED, quoted
from tests.models import build_pair, build_tokenizer

LONG = {
    "number": -(10**400),
    "number that Python does not write": -(10**5000),
    "text": "x" * 5000,
    "list": [["x" * 5000] * 5000],
    "object": {"x" * 5000: ["y"] * 5000},
}


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


@pytest.mark.parametrize("given", LONG)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_cannot_be_used_is_repeated_in_short(pair, option, given):
    """A number of 401 digits was repeated whole; one of 5,001 gave a ValueError of Python's own."""
    value = LONG[given]
    if option == "cancel" and not hasattr(value, "is_set"):
        value = (value,)
    assert len(message(lambda: decoders.check(pair, [1], "greedy", **{option: value}))) < 330


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


def test_a_token_id_that_cannot_be_used_is_repeated_in_short(pair):
    for ids in ([10**400], [10**5000], ["x" * 5000, 1]):
        assert len(message(lambda ids=ids: decoders.check(pair, ids, "greedy"))) < 330


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


def test_no_message_repeats_what_was_given_by_other_means():
    """One function shortens; `{value!r}` does not, and `{value!r:.80}` first writes the whole."""
    for package in (decoders, workbench):
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            raised = [
                node
                for node in ast.walk(ast.parse(file.read_text("utf-8")))
                if isinstance(node, ast.Raise)
            ]
            parts = [
                part
                for node in raised
                for part in ast.walk(node)
                if isinstance(part, ast.FormattedValue)
            ]
            whole = {ast.unparse(part.value) for part in parts if part.conversion == ord("r")}
            assert whole <= {"close[0]"}, file  # a name that is known
