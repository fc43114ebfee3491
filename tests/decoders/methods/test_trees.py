"""Trees of chosen tokens, of models, counts and earlier readings."""

import heapq
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import catalog
from decoders.errors import InputError
from decoders.methods.block import Traversal
from decoders.methods.copies import BestFirst, Recycled, Recycler
from decoders.methods.rules import MultiRound
from decoders.methods.sources import Draft
from decoders.reading import Readings
from decoders.request import Draw
from decoders.testing.situations import Drawn, drawn
from tests.pieces import propose, request


def by_heap(table: Drawn, prompt: tuple, size: int, depth: int) -> set[tuple[int, ...]]:
    """The definition: pop the likeliest node into the tree and push its children."""
    heap, tree = [(-1.0, 0, ())], []
    number = itertools.count(1)
    while heap and len(tree) <= size:
        chance, _, path = heapq.heappop(heap)
        tree.append(path)
        if len(path) < depth:
            for token, q in enumerate(table(prompt + path).softmax(-1).tolist()):
                heapq.heappush(heap, (chance * q, next(number), (*path, token)))
    return set(tree[1:])


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 5))
def test_layer_by_layer_it_is_the_tree_of_a_heap(seed, nodes, depth):
    table, r = Drawn(4, seed), request((0, 1))
    draft, passes = propose(r, BestFirst(nodes, depth).start(r).propose(r), table)
    paths = {tuple(r.tree.new_tokens(d.node)) for d in draft.draws}
    assert paths == by_heap(table, (0, 1), nodes, depth)
    assert passes <= depth
    seen = {draft.root}
    for draw in draft.draws:  # parents first
        assert draw.parent in seen
        seen.add(draw.node)


@pytest.mark.parametrize("rule", [MultiRound(), Traversal()], ids=["multiround", "traversal"])
def test_p_over_q_on_its_tokens_is_refused(rule):
    with pytest.raises(InputError, match="cannot judge the draft best_first, a tree of chosen"):
        catalog["speculative"](rule=rule.name, draft="best_first(nodes=2)")


def begun(prompt, **settings):
    r = request(tuple(prompt))
    return r, Recycler(r, Recycled(**settings))


def tokens(r, recycler):
    draft, passes = propose(r, recycler.propose(r))
    assert passes == 0
    return {tuple(r.tree.text(d.node, r.tree.depths[r.tip] + 1)) for d in draft.draws}


def readings(table, nodes):
    return list(Readings(table.expand(len(nodes), -1), 4))


def test_it_learns_from_refused_nodes_too_and_the_last_of_equal_tokens_counts():
    r, recycler = begun([3], width=2)
    tokens(r, recycler)
    tree = r.tree
    a, b = tree.add(r.tip, 4), tree.add(r.tip, 5)
    again = tree.add(b, 4)
    draft = Draft(r.tip, [Draw(a, r.tip, 4), Draw(b, r.tip, 5), Draw(again, b, 4)])
    rows = drawn(6, 1).target
    paths = [(3,), (3, 4), (3, 5), (3, 5, 4)]
    recycler.learn(draft, [next(iter(Readings(rows(path)[None], 4))) for path in paths])
    best = {path: rows(path).topk(2).indices.tolist() for path in paths}
    assert recycler.said == {3: best[3,], 4: best[3, 5, 4], 5: best[3, 5]}


def test_what_the_target_said_goes_before_what_the_text_had():
    r, recycler = begun([1, 5, 1], nodes=1, depth=1)
    assert tokens(r, recycler) == {(5,)}
    rows = drawn(6, 1).target
    recycler.learn(Draft(r.tip), [next(iter(Readings(rows((1,))[None], 8)))])
    assert tokens(r, recycler) == {(rows((1,)).argmax().item(),)}
