"""Two greedy texts: the fold under Runs, and the command."""

import json

import gradio as gr
import pytest

import decoders
from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.page.layout import build


@pytest.fixture(scope="module")
def page(pair, tmp_path_factory) -> gr.Blocks:
    return build(a_host(pair, tmp_path_factory.mktemp("divergence")))


def verdict(page, *texts: str) -> str:
    visitor = Visitor(page)
    for name, text in zip(("prompt", "first", "second", "dtype"), texts, strict=False):
        visitor.put(f"divergence-{name}", text)
    visitor.press("diverge")
    assert visitor.breakdowns == []
    return visitor.value("divergence-verdict")


def test_pasted_texts_get_a_verdict_and_stay_text(page, pair):
    good = decoders.generate(pair, "abab", "greedy", max_new_tokens=6, ignore_eos=True)
    said = verdict(page, "abab", json.dumps(good.tokens), json.dumps([*good.tokens[:2], 9, 9]))
    assert "Fault at new token 3" in said
    assert "in float64" in said
    assert "<b>" not in verdict(page, "abab", "<b>", "a<b>")


def test_strangers_compare_as_many_tokens_as_they_may_ask_for(pair, tmp_path):
    house = build(a_host(pair, tmp_path, public=True, max_new_tokens=2))
    assert "at most 2 are compared" in verdict(house, "abab", "[9, 9, 9, 1]", "[9, 9, 9, 2]")
    assert "Fault" in verdict(house, "abab", "[9, 9, 1]", "[9, 9, 2]")


@pytest.mark.parametrize(("texts", "words"), [
    (("", "a", "b"), "The prompt is empty; paste"),
    (("ab", "[999]", "b"), "Token id 999 is out of range"),
    (("ab", "a", "b", "float8"), "dtype must be"),
])  # fmt: skip
def test_what_cannot_be_used_gets_one_sentence(page, texts, words):
    said = verdict(page, *texts)
    assert 'role="alert"' in said
    assert words in said
