"""Where drafts come from: chains, trees, several paths."""

from collections import Counter

import pytest
import torch

from decoders.distribution import Small, Warping, warp
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.sources import tree, without_replacement
from decoders.request import SeededSource
from decoders.testing.oracle import decode
from decoders.testing.situations import Drawn, Rows, Situation, drawn
from decoders.trace import Fate
from tests.pieces import FORMS, propose, request


def test_what_a_source_gives_to_a_chain_does_not_depend_on_where_it_ends():
    """A chain that ends early leaves its numbers unused, so that later draws do not change."""
    short, long, apart = SeededSource(5), SeededSource(5), SeededSource(5)
    coin = Small({0: 0.5, 1: 0.5})
    draw, whole = short.chain(4), long.chain(4)
    assert [draw(coin)] == [whole(coin) for _ in range(4)][:1]
    assert short.accept(0.5) == long.accept(0.5)
    assert apart.draw(coin, 4)[:1] == [SeededSource(5).chain(4)(coin)]


MODEL = Drawn(5, 1)


def grow(r, *args, **options):
    return propose(r, tree(r, *args, **options), MODEL)


def test_every_draw_gets_its_children_and_each_layer_is_one_pass():
    r = request((0,))
    draft, passes = grow(r, (3, 2, 1))
    depths = Counter(r.tree.depths[d.node] for d in draft.draws)
    assert depths == {1: 3, 2: 6, 3: 6}
    assert passes == 3
    per_draw = Counter(d.parent for d in draft.draws)
    above = Counter(d.node for d in draft.draws)
    assert all(
        per_draw[n] == (2 if r.tree.depths[n] == 1 else 1) * above[n]
        for n in per_draw
        if n != draft.root
    )


def test_it_hands_over_what_it_drew_from():
    r = request((0, 3), warping=Warping(0.5, 3))
    draft, _ = grow(r, (2, 1))
    assert set(draft.q) == {d.parent for d in draft.draws}
    for node, q in draft.q.items():
        path = tuple(r.tree.tokens[n] for n in r.tree.lineage(node))
        expected = enumerate(warp(MODEL(path), r.warping).tolist())
        assert dict(q.items()) == pytest.approx({x: m for x, m in expected if m})


def test_an_end_token_stops_its_branch_and_only_that():
    seeds = range(20)
    for seed in seeds:
        r = request((0,), source=SeededSource(seed), end_tokens=frozenset({2}))
        draft, _ = grow(r, (3, 1, 1))
        tokens, parents = r.tree.tokens, {d.parent for d in draft.draws}
        first = [d for d in draft.draws if d.parent == draft.root]
        assert not any(tokens[n] == 2 for n in parents)
        assert all(d.node in parents for d in first if d.token != 2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_draws_without_replacement_differ_and_run_out_with_the_support(form):
    q = form(torch.tensor([0.6, 0, 0.3, 0.1], dtype=torch.float64))
    orders = {tuple(without_replacement(SeededSource(seed), q, 4)) for seed in range(40)}
    assert all(sorted(order) == [0, 2, 3] for order in orders)
    assert len(orders) > 3
    assert without_replacement(SeededSource(0), form(torch.tensor([0.0, 1.0])), 3) == [1]


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


@pytest.mark.parametrize("given", [[3, 2, 1], " 3, 2 ,1 "])
def test_an_expansion_is_a_sequence_or_a_text(given):
    method = catalog["mcss"](expansion=given)
    assert method == catalog["mcss"](expansion=(3, 2, 1))
    assert hash(method) == hash(catalog["mcss"](expansion=(3, 2, 1)))


@pytest.mark.parametrize("given", ["", "3,,1", (3, 0), (1.5,), 3])
def test_an_expansion_that_is_none_is_refused(given):
    with pytest.raises(
        InputError, match="specinfer: expansion must be whole numbers of 1 or more, as 3,2,1,1, not"
    ):
        catalog["specinfer"](expansion=given)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("specinfer", {"expansion": (8, 8, 8)}), ("spectr", {"drafts": 64, "draft_length": 64})],
)
def test_a_tree_too_large_is_refused(name, settings):
    with pytest.raises(InputError, match="more than 512 draft tokens per round are too many"):
        catalog[name](**settings)
