"""Chains: one request is answered with several tokens, drawn as if each were requested alone."""

import pytest

from decoders import catalog, generate
from decoders.distribution import Small, Warping
from decoders.loop import Turn
from decoders.methods import sources
from decoders.methods.baselines import Multinomial
from decoders.methods.sources import chain, tree
from decoders.randomness import SeededSource
from decoders.reading import Readings
from decoders.testing.oracle import Watched, decode
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate, Trial
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
        assert len(turn.drawn) == tokens
    assert turn.missing() == [turn.drawn[0].node]
