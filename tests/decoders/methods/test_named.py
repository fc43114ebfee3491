"""A rule and a draft source are two settings of one decoder."""

from dataclasses import dataclass
from types import ModuleType

import pytest

from decoders import catalog, judge
from decoders.distribution import Warping, minimum, point_mass, residual
from decoders.errors import InputError
from decoders.methods.copies import Copied
from decoders.methods.named import by_name, part
from decoders.methods.rules import NodeWise, Pick, Rule
from decoders.methods.sources import CHAINS, Chain, Tree
from decoders.request import SeededSource
from decoders.settings import setting
from decoders.testing.oracle import assert_exact, decode
from decoders.testing.situations import drawn
from tests.pieces import Made


@pytest.mark.parametrize(("named", "settings"), [
    ("block", {"rule": "block"}),
    ("spectr", {"rule": "kseq", "draft": "paths"}),
    ("specinfer", {"rule": "multiround", "draft": "tree"}),
    ("traversal", {"rule": "traversal", "draft": "tree"}),
    ("bild", {"rule": "rollback", "draft": "model(draft_length=10, confidence=0.9)"}),
    ("lookup", {"draft": "lookup"}),
    ("best_first", {"rule": "match", "draft": "best_first"}),
    ("recycling", {"rule": "match", "draft": "recycling"}),
])  # fmt: skip
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


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("speculative", {"rule": "kseq", "draft": "lookup"},
     "the rule kseq cannot judge the draft lookup, a chain of tokens without probabilities; "
     "take the draft model"),
    ("block", {"draft": "tree"}, "the rule block cannot judge the draft tree"),
    ("speculative", {"rule": "blok"}, "there is no rule 'blok': did you mean 'block'"),
    ("speculative", {"draft": "lookup(7)"}, r"are written as lookup\(name=value\)"),
    ("speculative", {"draft": "lookup(coppy=7)"}, "lookup has no setting 'coppy'"),
    ("speculative", {"rule": "block", "lenience": 0.5}, "lenience is no setting of rule="),
])  # fmt: skip
def test_parts_that_do_not_fit_are_refused_in_one_sentence(name, settings, message):
    with pytest.raises(InputError, match=message):
        catalog[name](**settings)


@pytest.mark.parametrize("rule", ["cascade", "ensemble"])
def test_a_mixture_with_a_head_claims_no_law(rule):
    """Cascade and ensemble claimed their mixture's law, though a head's q is none of a text."""
    assert catalog["speculative"](rule=rule).law == rule
    assert catalog["speculative"](rule=rule, draft="head").law is None


def test_one_number_of_several_in_brackets():
    """`tree(expansion=2)` was refused, because 2 became a number before the setting read it."""
    source, _ = catalog["match"](draft="tree(expansion=2)").parts
    assert source.expansion == (2,)


@dataclass(frozen=True)
class Coin(NodeWise):
    """A rule that somebody adds: speculative sampling that refuses half of what it may keep."""

    name = "coin"
    judges = CHAINS

    share: float = setting(0.5, "of the chance to keep a token, what is left", low=0.0, high=1.0)

    def pick(self, node, source):
        p, q, (token,) = node[:3]
        q = q or point_mass(token)
        chance = self.share * min(1.0, p[token] / q[token])
        kept, u = source.accept(chance)
        rest = residual(p, self.share * minimum(p, q))
        return Pick([(p[token], q[token], chance, u)], kept, None if kept else rest)


def test_a_rule_is_added_in_one_place():
    """A class in a file of rules: its name, settings, sentence, law and fit are all there."""
    module = ModuleType(__name__)
    module.Coin = Coin
    assert by_name(Rule, module) == {"coin": Coin}
    assert part(by_name(Rule, module), "mine", "coin(share=0.25)") == Coin(0.25)
    with pytest.raises(InputError, match="coin: share must be a number from"):
        Coin(2)
    for source in (Chain(2), Copied(2)):
        assert_exact(Made(source, Coin()), drawn(3, 1, budget=2, warping=Warping(0.7)))
    (judgement,) = judge([[0.5, 0.5]] * 2, [[0.5, 0.5]], [0], [Coin()], uniforms=[0.7])
    assert (judgement.kept, judgement.expected) == (0, 0.5)
    assert "so it passes with chance 0.5" in judgement.why()
    with pytest.raises(InputError, match="the rule coin cannot judge the draft tree"):
        Made(Tree((2,)), Coin())


def test_the_rule_of_mtad_judges_drafts_of_any_decoder():
    """It was a rule of `judge` alone."""
    method = catalog["speculative"](rule="mtad(threshold=1)", draft_length=2)
    assert method.law is None
    assert_exact(method, drawn(3, 1, budget=2, warping=Warping(0.7, 2)), law="target")
