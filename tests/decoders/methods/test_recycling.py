"""Token recycling: the target's likeliest tokens after each token, refused ones included."""

import pytest

from decoders import catalog, generate
from decoders.distribution import Warping
from decoders.methods.sources import Draft
from decoders.methods.trees import Recycled, Recycler
from decoders.randomness import SeededSource
from decoders.reading import Readings
from decoders.request import Draw
from decoders.testing.oracle import assert_exact, decode
from decoders.testing.situations import drawn
from tests.models import build_pair
from tests.pieces import propose, request

LOOP = (0, 1, 2, 0, 1)


@pytest.mark.parametrize(
    "settings", [{"nodes": 1}, {"nodes": 3, "depth": 2}, {"nodes": 6, "width": 2}], ids=repr
)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
@pytest.mark.parametrize("references", [(), ((0, 1, 1, 2), (2, 2, 0))])
def test_it_has_the_targets_law(settings, warping, references):
    situation = drawn(
        3, 5, budget=4, warping=warping, end=frozenset({2}), prompt=LOOP, references=references
    )
    assert_exact(catalog["recycling"](**settings), situation)
    drafted = decode(catalog["recycling"](**settings), situation, SeededSource(0)).rounds
    assert any(entry.drafted for entry in drafted)


def begun(prompt, **settings):
    r = request(tuple(prompt))
    return r, Recycler(r, Recycled(**settings))


def tokens(r, recycler):
    draft, passes = propose(r, recycler.propose(r))
    assert passes == 0
    return {tuple(r.tree.text(d.node, r.tree.depths[r.tip] + 1)) for d in draft.draws}


def readings(table, nodes):
    return list(Readings(table.expand(len(nodes), -1), 4))


def test_it_begins_with_the_pairs_of_the_prompt_the_last_first():
    r, recycler = begun([1, 5, 1, 6, 1], nodes=2, depth=1)
    assert tokens(r, recycler) == {(6,), (5,)}
    assert recycler.seen[1] == [6, 5]


def test_it_learns_from_refused_nodes_too_and_the_last_of_equal_tokens_counts():
    r, recycler = begun([3], width=2)
    tokens(r, recycler)
    tree = r.tree
    a, b = tree.add(r.tip, 4), tree.add(r.tip, 5)
    again = tree.add(b, 4)
    draft = Draft(r.tip, [Draw(a, r.tip, 4), Draw(b, r.tip, 5), Draw(again, b, 4)])
    rows = drawn(6, 1).target
    paths = [(3,), (3, 4), (3, 5), (3, 5, 4)]
    recycler.learn(draft, [Readings(rows(path)[None], 4)[0] for path in paths])
    best = {path: rows(path).topk(2).indices.tolist() for path in paths}
    assert recycler.said == {3: best[3,], 4: best[3, 5, 4], 5: best[3, 5]}


def test_what_the_target_said_goes_before_what_the_text_had():
    r, recycler = begun([1, 5, 1], nodes=1, depth=1)
    assert tokens(r, recycler) == {(5,)}
    rows = drawn(6, 1).target
    recycler.learn(Draft(r.tip), [Readings(rows((1,))[None], 8)[0]])
    assert tokens(r, recycler) == {(rows((1,)).argmax().item(),)}


def test_it_drafts_after_the_tokens_that_it_drafts():
    r, recycler = begun([1, 2, 3, 1], nodes=4, depth=4)
    assert tokens(r, recycler) == {(2,), (2, 3), (2, 3, 1), (2, 3, 1, 2)}


def test_a_seed_gives_the_same_tokens_in_any_batch_and_order():
    pair = build_pair()
    prompts = [[5, 9, 3] * 4, [1, 2, 3], [4] * 9]
    options = {"max_new_tokens": 16, "temperature": 0.6}
    method = catalog["recycling"]()
    alone = [generate(pair, p, method, seed=i, **options).tokens for i, p in enumerate(prompts)]
    for order in ([0, 1, 2], [2, 0, 1]):
        batch = generate(
            pair, [prompts[i] for i in order], method, seed=order, max_batch=2, **options
        )
        assert [r.tokens for r in batch] == [alone[i] for i in order]
