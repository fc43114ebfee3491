"""A rule and a draft source are two settings of one decoder."""

import pytest

from decoders import catalog
from decoders.errors import InputError
from decoders.randomness import SeededSource
from decoders.testing.oracle import decode
from decoders.testing.situations import drawn


@pytest.mark.parametrize(
    ("named", "settings"),
    [
        ("block", {"rule": "block"}),
        ("match", {"rule": "match"}),
        ("typical", {"rule": "typical"}),
        ("spectr", {"rule": "kseq", "draft": "paths"}),
        ("specinfer", {"rule": "multiround", "draft": "tree"}),
        ("mcss", {"rule": "multiround", "draft": "distinct"}),
        ("traversal", {"rule": "traversal", "draft": "tree"}),
        ("bild", {"rule": "rollback", "draft": "model(draft_length=10, confidence=0.9)"}),
        ("lookup", {"draft": "lookup"}),
        ("ngram", {"draft": "ngram"}),
        ("best_first", {"rule": "match", "draft": "best_first"}),
        ("suffix", {"rule": "match", "draft": "suffix"}),
        ("recycling", {"rule": "match", "draft": "recycling"}),
    ],
)
def test_named_decoders_are_combinations(named, settings):
    for seed in range(3):
        situation = drawn(5, seed, budget=20, prompt=(0, 1, 0))
        one, other = (
            decode(m, situation, SeededSource(seed))
            for m in (catalog[named](), catalog["speculative"](**settings))
        )
        assert [r.trials for r in one.rounds] == [r.trials for r in other.rounds]


def test_settings_in_brackets_are_the_parts_own():
    assert catalog["speculative"](draft="tree( expansion=2,3 )", rule="match").branches == (1, 9)
    with pytest.raises(InputError, match="lookup: copy must be"):
        catalog["speculative"](draft="lookup(copy=0)")


def test_a_decoders_settings_serve_another_part_that_has_them():
    short, long = (
        decode(catalog["speculative"](n, draft="ngram"), drawn(3, 0, budget=9), SeededSource(0))
        for n in (1, 5)
    )
    assert max(r.drafted for r in short.rounds) == 1 < max(r.drafted for r in long.rounds)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("speculative", {"rule": "kseq", "draft": "lookup"},
         "the rule kseq cannot judge the draft lookup, a chain of tokens without probabilities; "
         "take the draft model"),
        ("speculative", {"draft": "tree"}, "the rule tokenwise cannot judge the draft tree"),
        ("block", {"draft": "tree"}, "the rule block cannot judge the draft tree"),
        ("lookup", {"rule": "multiround"}, "the rule multiround cannot judge the draft lookup"),
        ("speculative", {"rule": "blok"}, "there is no rule 'blok': did you mean 'block'"),
        ("speculative", {"draft": "modell"}, "there is no draft 'modell': did you mean 'model'"),
        ("speculative", {"draft": None}, "there is no draft None"),
        ("speculative", {"draft": "lookup(7)"}, r"are written as lookup\(name=value\)"),
        ("speculative", {"draft": "lookup(coppy=7)"}, "lookup has no setting 'coppy'"),
        ("speculative", {"rule": "block", "lenience": 0.5}, "lenience is no setting of rule="),
        ("speculative", {"draft": "lookup", "confidence": 0.5}, "confidence is no setting"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused_in_one_sentence(name, settings, message):
    with pytest.raises(InputError, match=message):
        catalog[name](**settings)


@pytest.mark.parametrize("rule", ["cascade", "ensemble"])
def test_a_mixture_with_a_head_claims_no_law(rule):
    """Cascade and ensemble claimed their mixture's law, though a head's q is none of a text."""
    assert catalog["speculative"](rule=rule).law == rule
    assert catalog["speculative"](rule=rule, draft="head").law is None


def test_the_claims_follow_the_parts():
    speculative = catalog["speculative"]
    assert (speculative.law, speculative.uses_draft) == ("target", True)
    assert speculative(rule="typical").law is None
    assert not speculative(draft="lookup").uses_draft


def test_one_number_of_several_in_brackets():
    """`tree(expansion=2)` was refused, because 2 became a number before the setting read it."""
    source, _ = catalog["match"](draft="tree(expansion=2)").parts
    assert source.expansion == (2,)
