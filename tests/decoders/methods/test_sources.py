"""Where drafts come from: chains, trees, several paths."""

from collections import Counter

import pytest
import torch

from decoders import generate
from decoders.distribution import Small, Warping, warp
from decoders.errors import InputError
from decoders.loop import Turn
from decoders.methods import sources
from decoders.methods.baselines import Multinomial
from decoders.methods.catalog import catalog
from decoders.methods.sources import chain, tree, with_replacement, without_replacement
from decoders.randomness import SeededSource
from decoders.reading import Readings
from decoders.testing.oracle import Watched, assert_exact, decode
from decoders.testing.situations import Drawn, Rows, Situation, drawn
from decoders.trace import Fate, Trial
from tests.models import build_pair
from tests.pieces import FORMS, propose, request

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, [1, 2, 1, 2, 1]]
WARPING = Warping(0.8, 3)


@pytest.mark.parametrize(
    "warping", [{"top_k": 20}, {"temperature": 0.6, "top_p": 0.9}, {}, {"temperature": 0}]
)
def test_a_chain_is_a_tree_without_branches(warping, monkeypatch):
    """The same tokens from the same uniform numbers, alone, in a batch and requested one by one."""
    pair, method = build_pair(), catalog["speculative"](draft_length=5)
    options = {"max_new_tokens": 24, "ignore_eos": True, **warping}
    batch = [r.tokens for r in generate(pair, PROMPTS, method, seed=3, **options)]
    assert batch == [
        generate(pair, p, method, seed=3 + i, **options).tokens for i, p in enumerate(PROMPTS)
    ]
    monkeypatch.setattr(sources, "chain", lambda request, length, *_: tree(request, (1,) * length))
    assert batch == [r.tokens for r in generate(pair, PROMPTS, method, seed=3, **options)]


def test_what_a_source_gives_to_a_chain_does_not_depend_on_where_it_ends():
    """A chain that ends early leaves its numbers unused, so that later draws do not change."""
    short, long, apart = SeededSource(5), SeededSource(5), SeededSource(5)
    coin = Small({0: 0.5, 1: 0.5})
    draw, whole = short.chain(4), long.chain(4)
    assert [draw(coin)] == [whole(coin) for _ in range(4)][:1]
    assert short.accept(0.5) == long.accept(0.5)
    assert apart.draw(coin, 4)[:1] == [SeededSource(5).chain(4)(coin)]


def test_a_chain_ends_with_the_text_and_is_as_long_as_the_budget_allows():
    def lengths(budget, end):
        found = []

        class Drafts(Multinomial):
            def decode(self, request):
                draft = yield from chain(request, 4)
                found.append([d.token for d in draft.draws])
                assert list(draft.q) == [d.parent for d in draft.draws]
                (drawn,) = yield request.draw("target", request.tip, 1)
                while not request.finished:
                    trial = Trial(drawn.node, drawn.token, drawn.parent, Fate.SAMPLED)
                    yield request.advance([trial], drawn.node)
                    if not request.finished:
                        (drawn,) = yield request.draw("target", request.tip, 1)

        rows = Rows(((0.99, 0.005, 0.005), (0.005, 0.99, 0.005)))
        decode(
            Drafts(),
            Situation(rows, rows, budget=budget, end=end, warping=Warping(0)),
            SeededSource(0),
        )
        return found[0]

    assert lengths(9, frozenset()) == [0, 1, 1, 1]
    assert lengths(3, frozenset()) == [0, 1]
    assert lengths(1, frozenset()) == []
    assert lengths(9, frozenset({1})) == [0, 1]


def test_a_chain_begins_without_a_pass_where_the_model_is_known_to_continue():
    """A correction may be the very token that was refused: the draft model has seen it."""
    request = Watched([0], source=SeededSource(0), warping=Warping(), budget=9)

    def decoding():
        (first,) = yield request.draw("draft", request.tip, 1)
        yield request.ask("draft", [first.node])
        yield request.draw("draft", first.node, 2)

    turn, table = Turn(0, request, decoding()), drawn(3).draft
    turn.start()
    for tokens in (0, 1):  # of the chain of two, the first is drawn at once
        (node,) = turn.missing()
        turn.answer(Readings(table(request.path(node))[None], 3))
        assert len(turn.draws) == tokens
    assert turn.missing() == [turn.draws[0].node]


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
