"""Drafts without a model: copies, and beside them counts."""

import dataclasses

import pytest

import decoders
from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.randomness import SeededSource
from decoders.testing.oracle import assert_exact, decode, distance
from decoders.testing.situations import Rows, Situation, drawn
from tests.models import VOCABULARY, build_pair, build_tokenizer

END = frozenset({2})
LOOP = (0, 1, 2, 0, 1)
PAIR = build_pair(tokenizer=build_tokenizer(("the", "cat")))
REPEATING = [5, 9, 3, 7, 1, 8] * 6
NO_MODEL = [
    catalog["lookup"](),
    catalog["lookup"](prefer="first"),
    catalog["ngram"](),
    catalog["ngram"](order="unigram"),
]


@pytest.mark.parametrize("method", NO_MODEL, ids=repr)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
def test_drafts_without_a_model_leave_the_targets_law(method, warping):
    situation = drawn(
        3, 5, budget=4, warping=warping, end=END, prompt=LOOP, references=((0, 1, 1, 2), (2, 2, 0))
    )
    assert_exact(method, situation)
    assert any(entry.drafted for entry in decode(method, situation, SeededSource(0)).rounds)


@pytest.mark.parametrize("name", ["lookup", "ngram"])
def test_lenience_takes_the_claim_away_and_accepts_more(name):
    exact, lenient = catalog[name](), catalog[name](lenience=0.2)
    assert exact.lossless
    assert not lenient.lossless
    situation = drawn(3, 1, budget=200, prompt=LOOP)
    kept = [
        sum(e.accepted for e in decode(m, situation, SeededSource(0)).rounds)
        for m in (exact, lenient)
    ]
    assert kept[1] > kept[0]


@pytest.mark.parametrize(("lenience", "output"), [(0.4, (2, 2)), (0.6, (1, 2))])
def test_a_copied_token_of_half_the_likelihood_of_the_best_passes_a_lenience_below_half(
    lenience, output
):
    """At temperature 0: p(x) >= l max p on the raw target.

    The copy says 2 where the target prefers 1 two to one."""
    target = Rows((*[(0.1, 0.6, 0.3)] * 4, (0.0, 0.1, 0.9)))
    situation = Situation(
        target, target, budget=2, warping=Warping(temperature=0), prompt=(0, 2, 1, 0)
    )
    assert (
        decode(catalog["lookup"](match=1, lenience=lenience), situation, SeededSource(0)).output
        == output
    )


def test_lenience_1_on_a_copy_is_the_exact_rule():
    situation = drawn(3, 2, prompt=LOOP)
    assert distance(catalog["lookup"](lenience=1.0), situation) < 1e-12
    lossy = dataclasses.replace(catalog["lookup"](), lenience=0.5)
    assert distance(lossy, situation, law="target") > 0.01


def test_a_reference_that_holds_the_output_is_copied():
    plain = decoders.generate(PAIR, "the cat", "greedy", max_new_tokens=24)
    helped = decoders.generate(
        PAIR,
        "the cat",
        catalog["lookup"](references=["the cat" + plain.text]),
        max_new_tokens=24,
        temperature=0.0,
    )
    unaided = decoders.generate(PAIR, "the cat", "lookup", max_new_tokens=24, temperature=0.0)
    assert helped.tokens == unaided.tokens == plain.tokens
    assert helped.metrics.target_calls < unaided.metrics.target_calls


@pytest.mark.parametrize("name", ["lookup", "ngram"])
class TestReferences:
    def test_one_text_or_several(self, name):
        assert catalog[name](references="a text").references == ("a text",)
        assert catalog[name](references=["a", "b"]).references == ("a", "b")

    @pytest.mark.parametrize(("given", "n"), [("", 1), (["a", " \n"], 2)])
    def test_an_empty_one_is_refused(self, name, given, n):
        with pytest.raises(
            InputError, match=f"Reference document {n} is empty; give it some text or leave it out"
        ):
            catalog[name](references=given)

    @pytest.mark.parametrize("given", [7, [7], [b"bytes"], None])
    def test_what_is_no_text_is_refused(self, name, given):
        with pytest.raises(InputError, match="references must be texts, not"):
            catalog[name](references=given)

    def test_they_need_a_tokenizer(self, name):
        with pytest.raises(
            InputError, match="Reference documents need a tokenizer; this pair has none"
        ):
            decoders.generate(build_pair(), [1, 2], catalog[name](references="a"))


def test_no_draft_model_is_needed_to_look_up_or_count():
    alone = decoders.ModelPair(PAIR.target, None, None)
    for name in ("lookup", "ngram"):
        out = decoders.generate(alone, REPEATING, name, max_new_tokens=4)
        assert out.metrics.draft_calls == 0
        assert max(out.tokens) < VOCABULARY
