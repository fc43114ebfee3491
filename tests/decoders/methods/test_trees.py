"""Trees of chosen tokens, of models, counts and earlier readings."""

import heapq
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import catalog, generate
from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.block import Traversal
from decoders.methods.named import BestFirstTrees
from decoders.methods.rules import MatchRule, MultiRound
from decoders.methods.sources import Draft, Drafting, Kind, said
from decoders.methods.trees import BestFirst, Recycled, Recycler
from decoders.randomness import SeededSource
from decoders.reading import Readings
from decoders.request import Draw
from decoders.testing.oracle import assert_exact, decode, distance
from decoders.testing.situations import Drawn, Rows, drawn
from tests.models import build_pair
from tests.pieces import Made, propose, request

SITUATIONS = [
    drawn(2, 1),
    drawn(3, 2, budget=2),
    drawn(3, 3, warping=Warping(0.7, 2), end=frozenset({2})),
    drawn(2, 4, budget=4, warping=Warping(0.8, 0, 0.9)),
    drawn(3, 5, budget=3, warping=Warping(0.8, min_p=0.2), prompt=(0, 1, 0)),
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
@pytest.mark.parametrize("by", ["model", "ngram"])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_it_has_the_targets_law(situation, by, nodes):
    assert_exact(BestFirstTrees(nodes, depth=2, by=by), situation, limit=60_000)


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
    assert {tuple(r.tree.new_tokens(d.node)) for d in draft.draws} == by_heap(
        table, (0, 1), nodes, depth
    )
    assert passes <= depth
    seen = {draft.root}
    for draw in draft.draws:  # parents first
        assert draw.parent in seen
        seen.add(draw.node)


@pytest.mark.parametrize(
    ("row", "depths"), [((0.97, 0.02, 0.01), [1, 2, 3]), ((0.4, 0.31, 0.29), [1, 1, 1])]
)
def test_it_is_deep_where_the_model_is_sure_and_wide_where_it_doubts(row, depths):
    r = request((0,))
    draft, _ = propose(r, BestFirst(3, 4).start(r).propose(r), Rows((row,)))
    assert [r.tree.depths[d.node] for d in draft.draws] == depths


@pytest.mark.parametrize(("budget", "depth"), [(1, 0), (2, 1), (3, 2), (50, 3)])
def test_it_leaves_room_for_the_targets_own_token(budget, depth):
    r = request((0,), budget=budget)
    draft, passes = propose(r, BestFirst(8, 3).start(r).propose(r), Drawn(3, 1))
    assert max((r.tree.depths[d.node] for d in draft.draws), default=0) == depth == passes


def test_nothing_is_proposed_after_an_end_token():
    r = request((0,), end_tokens=frozenset({1}))
    draft, _ = propose(r, BestFirst(12, 3).start(r).propose(r), Drawn(3, 1))
    tokens = {d.node: d.token for d in draft.draws}
    assert 1 in tokens.values()
    assert not any(tokens.get(d.parent) == 1 for d in draft.draws)


@dataclass(frozen=True)
class SaidToBeDrawn(BestFirst):
    """Hands over a q, as if its children had been drawn from it."""

    kind = Kind.TREE

    def start(self, request):
        chosen = super().start(request).propose

        def propose(request):
            draft = yield from chosen(request)
            parents = list(dict.fromkeys(d.parent for d in draft.draws))
            q = (yield from said(request, parents)) if parents else ()
            draft.q.update(zip(parents, q, strict=True))
            return draft

        return Drafting(propose, said)


@pytest.mark.parametrize("rule", [MultiRound(), Traversal()], ids=["multiround", "traversal"])
def test_p_over_q_on_its_tokens_is_refuted_and_refused(rule):
    assert distance(Made(SaidToBeDrawn(2, 1), rule), SITUATIONS[1]) > 0.01
    assert_exact(Made(SaidToBeDrawn(2, 1), MatchRule()), SITUATIONS[1])
    with pytest.raises(InputError, match="cannot judge the draft best_first, a tree of chosen"):
        catalog["speculative"](rule=rule.name, draft="best_first(nodes=2)")


def test_counts_need_no_draft_model():
    assert catalog["best_first"].uses_draft
    assert not catalog["best_first"](by="ngram").uses_draft


LOOP = (0, 1, 2, 0, 1)


@pytest.mark.parametrize(
    "settings", [{"nodes": 1}, {"nodes": 3, "depth": 2}, {"nodes": 6, "width": 2}], ids=repr
)
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2)])
@pytest.mark.parametrize("references", [(), ((0, 1, 1, 2), (2, 2, 0))])
def test_recycling_has_the_targets_law(settings, warping, references):
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
    assert recycler.followers[1] == [6, 5]


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
