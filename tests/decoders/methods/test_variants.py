"""SpecInfer, and beside it SpecTr and MCSS: several drafts in one pass."""

import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods import sources
from decoders.methods.catalog import catalog
from decoders.methods.sources import tree
from decoders.randomness import SeededSource
from decoders.testing.oracle import assert_exact, decode, distance
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate

END = frozenset({2})
TREES = [
    catalog["spectr"](drafts=2, draft_length=2),
    catalog["spectr"](drafts=3, draft_length=1),
    catalog["specinfer"](expansion=(2, 1)),
    catalog["specinfer"](expansion=(1, 2)),
    catalog["specinfer"](expansion=(3,)),
    catalog["mcss"](expansion=(2, 1)),
    catalog["mcss"](expansion=(1, 2)),
    catalog["mcss"](expansion=(3,)),
]


@pytest.mark.parametrize("method", TREES, ids=repr)
@pytest.mark.parametrize(
    "situation",
    [
        drawn(2, 1),
        drawn(3, 2, budget=2),
        drawn(3, 3, warping=Warping(0.7, 2)),
        drawn(3, 4, budget=2, end=END),
    ],
)
def test_several_drafts_leave_the_targets_law(method, situation):
    assert_exact(method, situation)


def test_children_taken_for_draws_fail_the_check(monkeypatch):
    """SpecInfer's rule on the k likeliest children with the softmax for q, as some code has it."""

    def likeliest(source, q, count):
        return sorted((x for x, _ in q.items()), key=lambda x: -q[x])[:count]

    monkeypatch.setattr(sources, "tree", lambda r, expansion: tree(r, expansion, sample=likeliest))
    assert distance(catalog["specinfer"](expansion=(2,)), drawn(3, 2, budget=2)) > 0.01


def test_one_draft_of_each_is_speculative_decoding():
    """Token for token with the same seed: the same draws in the same order."""
    for seed in range(8):
        situation = drawn(4, seed, budget=12)
        plain = decode(catalog["speculative"](draft_length=3), situation, SeededSource(seed)).output
        for method in (
            catalog["spectr"](drafts=1, draft_length=3),
            catalog["specinfer"](expansion=(1, 1, 1)),
            catalog["mcss"](expansion=(1, 1, 1)),
        ):
            assert decode(method, situation, SeededSource(seed)).output == plain


def test_candidates_as_many_as_the_support_are_always_accepted():
    for seed in range(6):
        r = decode(catalog["mcss"](expansion=(4,)), drawn(4, seed, budget=20), SeededSource(seed))
        assert not any(t.fate == Fate.CORRECTED for entry in r.rounds for t in entry.trials)


def test_equal_drafts_are_one_node_and_several_trials():
    sure = Rows(((0.0, 1.0),))
    for name in ("spectr", "specinfer"):
        r = decode(catalog[name](), Situation(sure, sure, budget=6), SeededSource(0))
        entry = r.rounds[0]
        first = [t for t in entry.trials if t.parent == r.tree.prompt_length - 1]
        assert [t.fate for t in first] == [Fate.ACCEPTED, *[Fate.DISCARDED] * (len(first) - 1)]
        assert len({t.node for t in first}) == 1
        assert entry.target_calls == 1
        assert len(entry.tokens) == 5


@pytest.mark.parametrize("name", ["specinfer", "mcss"])
@pytest.mark.parametrize("given", [(3, 2, 1), [3, 2, 1], "3,2,1", " 3, 2 ,1 "])
def test_an_expansion_is_a_sequence_or_a_text(name, given):
    method = catalog[name](expansion=given)
    assert method.expansion == (3, 2, 1)
    assert hash(method) == hash(catalog[name](expansion=(3, 2, 1)))


@pytest.mark.parametrize(
    "given", [(), "", "3,,1", "3;2", (3, 0), (2, -1), (1.5,), (True,), 3, None, "a", ("3",)]
)
def test_an_expansion_that_is_none_is_refused(given):
    with pytest.raises(
        InputError, match="specinfer: expansion must be whole numbers of 1 or more, as 3,2,1,1, not"
    ):
        catalog["specinfer"](expansion=given)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("specinfer", {"expansion": (8, 8, 8)}),
        ("mcss", {"expansion": (1,) * 513}),
        ("mcss", {"expansion": "99999999999999999999"}),
        ("spectr", {"drafts": 64, "draft_length": 64}),
    ],
)
def test_a_tree_too_large_is_refused(name, settings):
    with pytest.raises(InputError, match="more than 512 draft tokens per round are too many"):
        catalog[name](**settings)
