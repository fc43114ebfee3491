from collections import Counter

import pytest
import torch

from decoders.distribution import Small, Warping, warp
from decoders.methods.sources import tree, with_replacement, without_replacement
from decoders.randomness import SeededSource
from decoders.testing.situations import Drawn
from tests.pieces import FORMS, propose, request

MODEL = Drawn(5, 1)


def grow(r, *args, **options):
    return propose(r, tree(r, *args, **options), MODEL)


class Always:
    """A random source that draws the same token each time."""

    def draw(self, probs, count=1):
        return [1] * count


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


def test_equal_draws_share_a_node_and_stay_several():
    draft, _ = grow(request((0,), source=Always()), (2, 2))
    assert [d.token for d in draft.draws] == [1] * 6
    assert len({d.node for d in draft.draws}) == 2
    assert len(draft.nodes) == 3  # each is computed once


def test_it_hands_over_what_it_drew_from():
    r = request((0, 3), warping=Warping(0.5, 3))
    draft, _ = grow(r, (2, 1))
    assert set(draft.q) == {d.parent for d in draft.draws}
    for node, q in draft.q.items():
        path = tuple(r.tree.tokens[n] for n in r.tree.lineage(node))
        expected = warp(MODEL(path), r.warping)
        assert dict(q.items()) == pytest.approx(
            {x: m for x, m in enumerate(expected.tolist()) if m}
        )


@pytest.mark.parametrize(("budget", "layers"), [(1, 0), (2, 1), (3, 2), (9, 3)])
def test_it_is_never_deeper_than_the_budget_less_one(budget, layers):
    draft, passes = grow(request((0,), budget=budget), (2, 1, 1))
    assert passes == layers
    assert len(draft.draws) == 2 * layers


def test_an_end_token_stops_its_branch_and_only_that():
    seeds = range(20)
    for seed in seeds:
        r = request((0,), source=SeededSource(seed), end_tokens=frozenset({2}))
        draft, _ = grow(r, (3, 1, 1))
        tokens, parents = r.tree.tokens, {d.parent for d in draft.draws}
        first = [d for d in draft.draws if d.parent == draft.root]
        assert not any(tokens[n] == 2 for n in parents)
        assert all(d.node in parents for d in first if d.token != 2)


def test_it_stops_where_every_branch_has_ended():
    _, passes = grow(request((0,), source=Always(), end_tokens=frozenset({1})), (2, 1, 1))
    assert passes == 1


def test_draws_with_replacement_are_independent():
    q = Small({0: 0.5, 1: 0.5})
    assert [1, 1] in [with_replacement(SeededSource(seed), q, 2) for seed in range(10)]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_draws_without_replacement_differ_and_run_out_with_the_support(form):
    q = form(torch.tensor([0.6, 0, 0.3, 0.1], dtype=torch.float64))
    orders = {tuple(without_replacement(SeededSource(seed), q, 4)) for seed in range(40)}
    assert all(sorted(order) == [0, 2, 3] for order in orders)
    assert len(orders) > 3
    assert without_replacement(SeededSource(0), form(torch.tensor([0.0, 1.0])), 3) == [1]
