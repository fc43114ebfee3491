"""Chains: one request is answered with several tokens, drawn as if each were requested alone."""

from functools import partial

import pytest

from decoders import catalog, generate
from decoders.distribution import SeededSource, Small
from decoders.drafts import chain, tree
from decoders.methods import speculative
from decoders.methods.baselines import Multinomial
from decoders.reading import Readings
from decoders.testing.oracle import Watched, assert_exact, decode
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate, Trial
from decoders.turn import Turn
from decoders.warp import Warping
from tests.models import build_pair

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
    monkeypatch.setattr(
        speculative, "chain", lambda request, length, *_: tree(request, (1,) * length)
    )
    assert batch == [r.tokens for r in generate(pair, PROMPTS, method, seed=3, **options)]


@pytest.mark.parametrize("ahead", [2, 5, 100])
@pytest.mark.parametrize("end", [frozenset(), frozenset({2})])
def test_tokens_drawn_ahead_are_those_drawn_one_by_one(ahead, end):
    """Tokens drawn beyond the end of the text, by a stop string or the budget, are dropped."""
    for seed in range(8):
        situation = drawn(4, seed, budget=9, warping=WARPING, end=end)
        for stops in (None, lambda tokens: tokens[-2:] == [1, 0]):
            one, many = (
                decode(
                    Multinomial(),
                    situation,
                    SeededSource(seed),
                    request=partial(Watched, ahead=n),
                    stops=stops,
                )
                for n in (1, ahead)
            )
            assert (many.output, many.finished) == (one.output, one.finished)
            assert [many.kept[n].log_p for n in many.tree.lineage(many.answer, 1)] == pytest.approx(
                [one.kept[n].log_p for n in one.tree.lineage(one.answer, 1)]
            )


def test_tokens_drawn_ahead_have_the_targets_law():
    for end in (frozenset(), frozenset({1})):
        assert_exact(
            Multinomial(), drawn(3, 1, warping=WARPING, end=end), request=partial(Watched, ahead=3)
        )


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
        assert len(turn.drawn) == tokens
    assert turn.missing() == [turn.drawn[0].node]
